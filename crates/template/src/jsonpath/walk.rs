//! Applies a template to a document.

use serde_json::Value;

use super::MAX_RANGES;
use super::compare::holds;
use super::error::FindError;
use super::item::{Item, sorted};
use super::print::excerpt;
use super::syntax::{End, Node, Operator, Slice, Word};

/// How many bytes of two strings are compared in one step.
const BYTES_PER_STEP: usize = 64;

type Items<'d, 'p> = Vec<Item<'d, 'p>>;
type Walked<'d, 'p> = Result<Items<'d, 'p>, Stopped<'d, 'p>>;

/// An error, and the values at that point: a filter that only asks whether there is something passes if there are any,
/// as in client-go.
struct Stopped<'d, 'p> {
    values: Items<'d, 'p>,
    why: FindError,
}

impl From<FindError> for Stopped<'_, '_> {
    fn from(why: FindError) -> Self {
        Self { values: Vec::new(), why }
    }
}

/// The walk of one template over one document. `range` and `end` are counted wherever they are in an action, and take
/// effect by the counts after the action: client-go does it so, and its results for odd templates depend on it.
pub(super) struct Walk<'p> {
    nodes: &'p [Node],
    allow_missing_keys: bool,
    /// Ranges that an action has requested and that have not begun.
    beginning: usize,
    /// How many ranges the walk is in.
    inside: usize,
    /// Ends that an action has requested and that have not taken effect.
    ending: usize,
    /// Where the last range ended, to continue after it.
    last_end: Option<usize>,
    pub(super) steps_left: usize,
}

impl<'p> Walk<'p> {
    pub(super) fn new(nodes: &'p [Node], allow_missing_keys: bool, steps_left: usize) -> Self {
        Self {
            nodes,
            allow_missing_keys,
            beginning: 0,
            inside: 0,
            ending: 0,
            last_end: None,
            steps_left,
        }
    }

    pub(super) fn results<'d>(&mut self, data: &'d Value) -> Result<Vec<Items<'d, 'p>>, FindError> {
        let mut results = Vec::new();
        self.from(0, Item::root(data), &mut results)?;
        Ok(results)
    }

    /// Evaluates all nodes from `first` on, until a range ends.
    fn from<'d>(
        &mut self,
        first: usize,
        item: Item<'d, 'p>,
        results: &mut Vec<Items<'d, 'p>>,
    ) -> Result<(), FindError> {
        let nodes = self.nodes;
        let mut at = first;
        while let Some(node) = nodes.get(at) {
            let found = self.node(vec![item], node).map_err(|stopped| stopped.why)?;
            if (1..=self.inside).contains(&self.ending) {
                self.ending -= 1;
                self.last_end = Some(at);
                break;
            }
            if self.beginning > 0 {
                self.beginning -= 1;
                self.range(at + 1, found, results)?;
                // Without an end the rest is evaluated once more, now outside of the range.
                at = self.last_end.filter(|end| *end > at).unwrap_or(at);
            } else {
                results.push(found);
            }
            at += 1;
        }
        Ok(())
    }

    fn range<'d>(
        &mut self,
        first: usize,
        over: Items<'d, 'p>,
        results: &mut Vec<Items<'d, 'p>>,
    ) -> Result<(), FindError> {
        if self.inside == MAX_RANGES {
            return Err(FindError::TooManyRanges);
        }
        self.inside += 1;
        let before = results.len();
        if over.is_empty() {
            // Only by this is it known where the range ends.
            self.from(first, Item::Nothing, results)?;
            results.truncate(before);
        }
        for item in over {
            let item = match item {
                Item::Node(value) => Item::root(value),
                Item::Nothing => return Err(FindError::NoValue),
                made => made,
            };
            self.from(first, item, results)?;
        }
        self.inside -= 1;
        Ok(())
    }

    fn spend(&mut self, steps: usize) -> Result<(), FindError> {
        let left = self.steps_left.checked_sub(steps);
        self.steps_left = left.unwrap_or_default();
        left.map(drop).ok_or(FindError::TooManySteps)
    }

    fn path<'d>(&mut self, input: Items<'d, 'p>, nodes: &'p [Node]) -> Walked<'d, 'p> {
        nodes.iter().try_fold(input, |items, node| self.node(items, node))
    }

    fn node<'d>(&mut self, input: Items<'d, 'p>, node: &'p Node) -> Walked<'d, 'p> {
        self.spend(1 + input.len())?;
        let each = |made| Ok(vec![made; input.len()]);
        match node {
            Node::Action(nodes) => self.path(input, nodes),
            Node::Text(text) => Ok(vec![Item::Text(text)]),
            Node::Integer(number) => each(Item::Integer(*number)),
            Node::Float(number) => each(Item::Float(*number)),
            Node::Boolean(boolean) => each(Item::Boolean(*boolean)),
            Node::Word(word) => self.word(input, word),
            Node::Field(name) => Ok(self.field(&input, name)?),
            Node::Wildcard => Ok(self.wildcard(&input)?),
            Node::Descent => Ok(self.descent(input)?),
            Node::Slice(slice) => {
                self.slice(&input, *slice).map_err(|why| Stopped { values: input, why })
            }
            Node::Union(members) => self.union(input, members),
            Node::Filter { left, operator, right } => self.filter(input, left, operator, right),
        }
    }

    fn word<'d>(&mut self, input: Items<'d, 'p>, word: &Word) -> Walked<'d, 'p> {
        match word {
            Word::Range => {
                self.beginning += 1;
                Ok(input)
            }
            Word::End if self.inside > 0 => {
                self.ending += 1;
                Ok(Vec::new())
            }
            Word::End => Err(FindError::NotInRange.into()),
            Word::Other(word) => {
                Err(Stopped { values: input, why: FindError::Identifier(word.clone()) })
            }
        }
    }

    fn field<'d>(&self, input: &[Item<'d, 'p>], name: &str) -> Result<Items<'d, 'p>, FindError> {
        let of = |item: &Item<'d, 'p>| match item {
            Item::Node(Value::Object(object)) => object.get(name).map(Item::Node),
            _ => None,
        };
        let found: Items<'d, 'p> = input.iter().filter_map(of).collect();
        // From nothing comes nothing: an earlier field is missing, which was allowed.
        let is_good = !found.is_empty() || input.is_empty() || self.allow_missing_keys;
        if is_good { Ok(found) } else { Err(FindError::NotFound(name.to_owned())) }
    }

    fn wildcard<'d>(&mut self, input: &[Item<'d, 'p>]) -> Result<Items<'d, 'p>, FindError> {
        let mut found = Vec::new();
        for item in input {
            match item {
                Item::Node(Value::Object(object)) => {
                    self.spend(object.len())?;
                    found.extend(sorted(object).into_iter().map(|(_, value)| Item::Node(value)));
                }
                Item::Node(Value::Array(list)) => {
                    self.spend(list.len())?;
                    found.extend(list.iter().map(Item::Node));
                }
                other => {
                    let bytes = other.text().unwrap_or_default().bytes();
                    self.spend(bytes.len())?;
                    found.extend(bytes.map(Item::Byte));
                }
            }
        }
        Ok(found)
    }

    /// The recursive descent, depth first, each value before those within it. Strings count as values that may have
    /// others within; their bytes do not.
    fn descent<'d>(&mut self, mut input: Items<'d, 'p>) -> Result<Items<'d, 'p>, FindError> {
        let mut found = Vec::new();
        input.reverse();
        while let Some(item) = input.pop() {
            let within = match item {
                Item::Node(Value::Array(_) | Value::Object(_)) => self.wildcard(&[item])?,
                _ => Vec::new(),
            };
            if !within.is_empty() || item.text().is_some_and(|text| !text.is_empty()) {
                self.spend(1)?;
                found.push(item);
            }
            input.extend(within.into_iter().rev());
        }
        Ok(found)
    }

    fn slice<'d>(
        &mut self,
        input: &[Item<'d, 'p>],
        slice: Slice,
    ) -> Result<Items<'d, 'p>, FindError> {
        let mut found = Vec::new();
        for item in input.iter().filter(|item| !item.is_null()) {
            let Item::Node(Value::Array(list)) = item else {
                return Err(FindError::NotAList(item.type_name()));
            };
            let (elements, step) = within(list, slice)?;
            self.spend(elements.len().div_ceil(step))?;
            found.extend(elements.iter().step_by(step).map(Item::Node));
        }
        Ok(found)
    }

    fn union<'d>(&mut self, input: Items<'d, 'p>, members: &'p [Vec<Node>]) -> Walked<'d, 'p> {
        let mut found = Vec::new();
        for member in members {
            self.spend(1 + input.len())?;
            match self.path(input.clone(), member) {
                Ok(more) => found.extend(more),
                Err(stopped) => return Err(Stopped { values: input, why: stopped.why }),
            }
        }
        Ok(found)
    }

    fn filter<'d>(
        &mut self,
        input: Items<'d, 'p>,
        left: &'p [Node],
        operator: &Operator,
        right: &'p [Node],
    ) -> Walked<'d, 'p> {
        let mut found = Vec::new();
        for item in &input {
            let Item::Node(Value::Array(list)) = item else {
                let why = FindError::NotFilterable(excerpt(*item));
                return Err(Stopped { values: input, why });
            };
            for element in list.iter().map(Item::Node) {
                self.spend(1)?;
                let passes = match operator {
                    Operator::Exists => self.exists(element, left),
                    _ => match self.sides(element, left, right) {
                        Ok(sides) => self.compare(operator, sides),
                        Err(why) => return Err(Stopped { values: input, why }),
                    },
                };
                match passes {
                    Ok(true) => found.push(element),
                    Ok(false) => {}
                    Err(why) => return Err(Stopped { values: found, why }),
                }
            }
        }
        Ok(found)
    }

    fn exists<'d>(&mut self, element: Item<'d, 'p>, path: &'p [Node]) -> Result<bool, FindError> {
        match self.path(vec![element], path) {
            Ok(values) => Ok(!values.is_empty()),
            Err(stopped) if stopped.why.is_limit() => Err(stopped.why),
            Err(stopped) => Ok(!stopped.values.is_empty()),
        }
    }

    /// The two sides of a comparison; `None` if a side has no value.
    fn sides<'d>(
        &mut self,
        element: Item<'d, 'p>,
        left: &'p [Node],
        right: &'p [Node],
    ) -> Result<Option<[Item<'d, 'p>; 2]>, FindError> {
        let mut side = |path| {
            let values = self.path(vec![element], path).map_err(|stopped| stopped.why)?;
            match values.as_slice() {
                [] => Ok(None),
                [value] => Ok(Some(*value)),
                _ => Err(FindError::Several),
            }
        };
        let Some(left) = side(left)? else { return Ok(None) };
        Ok(side(right)?.map(|right| [left, right]))
    }

    fn compare(
        &mut self,
        operator: &Operator,
        sides: Option<[Item<'_, '_>; 2]>,
    ) -> Result<bool, FindError> {
        let Some([left, right]) = sides else { return Ok(false) };
        if let (Some(left), Some(right)) = (left.text(), right.text()) {
            self.spend(left.len().min(right.len()) / BYTES_PER_STEP)?;
        }
        holds(operator, &left, &right)
    }
}

/// The elements of a slice, and its step. Numbers that are out of all bounds wrap as Go's do.
fn within(list: &[Value], slice: Slice) -> Result<(&[Value], usize), FindError> {
    let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
    let from_end = |index: i64| if index < 0 { index.wrapping_add(length) } else { index };
    let start = from_end(slice.start);
    let end = match slice.end {
        End::Open => length,
        End::Before(end) => from_end(end),
        End::Single => start.wrapping_add(1),
    };
    if start == end {
        return Ok((&[], 1));
    }
    if !(0..length).contains(&start) {
        return Err(FindError::OutOfBounds { index: start, length });
    }
    if !(0..=length).contains(&end) {
        return Err(FindError::OutOfBounds { index: end.wrapping_sub(1), length });
    }
    let bounds = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    let Some(elements) = bounds.and_then(|(start, end)| list.get(start..end)) else {
        return Err(FindError::Backwards { start, end });
    };
    match slice.step.map(usize::try_from) {
        None => Ok((elements, 1)),
        Some(Ok(step @ 1..)) => Ok((elements, step)),
        Some(_) => Err(FindError::Step),
    }
}
