//! Evaluates an expression over an object, in a bounded number of steps.

use std::cmp::Ordering;

use serde_json::Value;

use super::arithmetic::{arithmetic, convert};
use super::parse::{Binary, Expr, Function, Loop, LoopParts, Node};
use super::value::Data;
use super::{Fault, Functions};

/// Why an evaluation has no value.
pub(super) enum Stop {
    /// An error of the language: another operand may make up for it.
    Fault(Fault),
    /// The steps are used up.
    Spent,
}

pub(super) type Outcome<T> = Result<T, Stop>;

pub(super) fn truth(expression: &Node, object: &Value, steps: u64) -> Result<bool, Fault> {
    let mut run = Run { scope: vec![Data::of(object)], functions: None, steps };
    let outcome = run.eval(expression).and_then(|data| match data {
        Data::Bool(truth) => Ok(truth),
        Data::Null => Err(not_yet("it is null")),
        other => Err(wrong(format!("it gives a {}: it must be true or false", other.kind()))),
    });
    outcome.map_err(Fault::from)
}

#[cfg(any(test, feature = "testing"))]
pub(super) fn value<'v>(
    expression: &Node,
    values: impl IntoIterator<Item = &'v Value>,
    functions: Functions<'_>,
    steps: u64,
) -> Result<Value, Fault> {
    let scope = values.into_iter().map(Data::of).collect();
    let mut run = Run { scope, functions: Some(functions), steps };
    run.eval(expression).map(|data| data.value()).map_err(Fault::from)
}

impl From<Stop> for Fault {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Fault(fault) => fault,
            Stop::Spent => Self::Wrong("it takes too many steps".to_owned()),
        }
    }
}

pub(super) fn not_yet(what: impl Into<String>) -> Stop {
    Stop::Fault(Fault::NotYet(what.into()))
}

fn wrong(what: impl Into<String>) -> Stop {
    Stop::Fault(Fault::Wrong(what.into()))
}

/// The fault of an operator that does not apply to its operands. Null counts as a value that is not there yet.
pub(super) fn mismatch(operator: &str, operands: &[&Data<'_>]) -> Stop {
    let kinds: Vec<&str> = operands.iter().map(|operand| operand.kind()).collect();
    match kinds.contains(&"null") {
        true => not_yet(format!("`{operator}` meets null")),
        false => wrong(format!("`{operator}` does not go with {}", kinds.join(" and "))),
    }
}

/// The path of fields to a value, if only fields lead to it.
fn path(node: &Node, field: &str) -> String {
    let mut fields = vec![field];
    let mut node = node;
    while let Expr::Field(of, field) = &node.expr {
        fields.push(field);
        node = of;
    }
    if matches!(node.expr, Expr::Variable(0)) {
        fields.push("self");
    }
    fields.reverse();
    fields.join(".")
}

struct Run<'a> {
    /// `self`, and the present elements of the running loops.
    scope: Vec<Data<'a>>,
    /// Functions beyond those of the language.
    functions: Option<Functions<'a>>,
    /// The steps that are left.
    steps: u64,
}

impl<'a> Run<'a> {
    fn spend(&mut self, steps: usize) -> Outcome<()> {
        let left = u64::try_from(steps).ok().and_then(|steps| self.steps.checked_sub(steps));
        self.steps = left.ok_or(Stop::Spent)?;
        Ok(())
    }

    fn read(&mut self, text: &str) -> Outcome<()> {
        self.spend(text.len() / 64)
    }

    fn eval(&mut self, node: &'a Node) -> Outcome<Data<'a>> {
        self.spend(1)?;
        match &node.expr {
            Expr::Literal(data) => Ok(data.clone()),
            Expr::Variable(place) => Ok(self.scope.get(*place).cloned().unwrap_or(Data::Null)),
            Expr::Field(of, field) => self.field(of, field),
            Expr::Has(of, field) => match self.eval(of)? {
                map if map.is_map() => Ok(Data::Bool(self.entry_named(&map, field)?.is_some())),
                other => Err(mismatch("has", &[&other])),
            },
            Expr::Index(parts) => self.index(&parts[0], &parts[1]),
            Expr::List(nodes) => {
                Ok(Data::OwnList(nodes.iter().map(|node| self.eval(node)).collect::<Outcome<_>>()?))
            }
            Expr::Map(nodes) => self.map_of(nodes),
            Expr::Not(of) => match self.eval(of)? {
                Data::Bool(truth) => Ok(Data::Bool(!truth)),
                other => Err(mismatch("!", &[&other])),
            },
            Expr::Negative(of) => match self.eval(of)? {
                Data::Int(int) => {
                    int.checked_neg().map(Data::Int).ok_or_else(|| not_yet("a number is too large"))
                }
                Data::Double(double) => Ok(Data::Double(-double)),
                other => Err(mismatch("-", &[&other])),
            },
            Expr::All(nodes) => self.first("&&", nodes, false),
            Expr::Any(nodes) => self.first("||", nodes, true),
            Expr::Binary(binary, parts) => {
                let (left, right) = (self.eval(&parts[0])?, self.eval(&parts[1])?);
                self.binary(*binary, &left, &right)
            }
            Expr::Choice(parts) => match self.condition("? :", &parts[0])? {
                true => self.eval(&parts[1]),
                false => self.eval(&parts[2]),
            },
            Expr::Call(function, nodes) => {
                let arguments: Vec<_> =
                    nodes.iter().map(|node| self.eval(node)).collect::<Outcome<_>>()?;
                self.call(*function, &arguments)
            }
            Expr::Foreign(name, nodes) => self.foreign(name, nodes),
            Expr::Loop(which, parts) => self.each(*which, parts),
        }
    }

    fn condition(&mut self, of: &str, node: &'a Node) -> Outcome<bool> {
        match self.eval(node)? {
            Data::Bool(truth) => Ok(truth),
            other => Err(mismatch(of, &[&other])),
        }
    }

    /// Evaluates `&&` or `||`: the truth value that decides alone, if an operand has it, even where another one is an
    /// error.
    fn first(&mut self, of: &str, nodes: &'a [Node], decides: bool) -> Outcome<Data<'a>> {
        let mut error = None;
        for node in nodes {
            match self.condition(of, node) {
                Ok(truth) if truth == decides => return Ok(Data::Bool(decides)),
                Ok(_) => {}
                Err(Stop::Spent) => return Err(Stop::Spent),
                Err(fault) => error = error.or(Some(fault)),
            }
        }
        error.map_or(Ok(Data::Bool(!decides)), Err)
    }

    fn field(&mut self, of: &'a Node, field: &str) -> Outcome<Data<'a>> {
        let data = self.eval(of)?;
        let found = match &data {
            Data::Null => None,
            map if map.is_map() => self.entry_named(map, field)?,
            other => {
                return Err(wrong(format!("{} is asked of a {}", path(of, field), other.kind())));
            }
        };
        found.ok_or_else(|| not_yet(format!("{} is not there", path(of, field))))
    }

    fn entry_named(&mut self, map: &Data<'a>, name: &str) -> Outcome<Option<Data<'a>>> {
        match map {
            Data::Object(map) => Ok(map.get(name).map(Data::of)),
            _ => self.entry(map, &Data::text(name.to_owned())),
        }
    }

    fn entry<'m>(&mut self, map: &Data<'m>, key: &Data<'_>) -> Outcome<Option<Data<'m>>> {
        match map {
            Data::Object(map) => {
                let Some(key) = key.as_text() else { return Ok(None) };
                // A lookup compares the key about this often, if there are many keys.
                self.spend(key.len() / 64 * 8)?;
                Ok(map.get(key).map(Data::of))
            }
            Data::OwnMap(map) => {
                for (each, value) in map.iter() {
                    if self.equal(each, key)? {
                        return Ok(Some(value.clone()));
                    }
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Evaluates an index. No error names the index: it may come from the object.
    fn index(&mut self, of: &'a Node, by: &'a Node) -> Outcome<Data<'a>> {
        let (of, by) = (self.eval(of)?, self.eval(by)?);
        if of.is_map() && !matches!(by, Data::Null) {
            return self.entry(&of, &by)?.ok_or_else(|| not_yet("a key is not there"));
        }
        match by.whole() {
            Some(index) if of.is_list() => {
                let element = usize::try_from(index).ok().and_then(|index| of.element(index));
                element.ok_or_else(|| not_yet("an element is not there"))
            }
            _ => Err(mismatch("[ ]", &[&of, &by])),
        }
    }

    fn map_of(&mut self, nodes: &'a [Node]) -> Outcome<Data<'a>> {
        let mut entries: Vec<(Data<'a>, Data<'a>)> = Vec::new();
        for pair in nodes.chunks_exact(2) {
            let (key, value) = (self.eval(&pair[0])?, self.eval(&pair[1])?);
            if !matches!(key.kind(), "bool" | "int" | "uint" | "string") {
                return Err(mismatch("{ }", &[&key]));
            }
            for (other, _) in &entries {
                if self.equal(other, &key)? {
                    return Err(wrong("a map has a key twice"));
                }
            }
            entries.push((key, value));
        }
        Ok(Data::OwnMap(entries.into()))
    }

    fn equal(&mut self, left: &Data<'_>, right: &Data<'_>) -> Outcome<bool> {
        self.spend(1)?;
        match (left, right) {
            (Data::Null, Data::Null) => Ok(true),
            _ if left.count() != right.count() => Ok(false),
            _ if left.is_list() && right.is_list() => {
                for index in 0..left.count().unwrap_or_default() {
                    let (Some(left), Some(right)) = (left.element(index), right.element(index))
                    else {
                        return Ok(false);
                    };
                    if !self.equal(&left, &right)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ if left.is_map() && right.is_map() => self.equal_maps(left, right),
            _ => {
                self.read(left.as_text().unwrap_or_default())?;
                Ok(left.order(right) == Ok(Some(Ordering::Equal)))
            }
        }
    }

    fn equal_maps(&mut self, left: &Data<'_>, right: &Data<'_>) -> Outcome<bool> {
        let keys = left.elements();
        self.spend(keys.len())?;
        for key in keys {
            let (Some(left), Some(right)) = (self.entry(left, &key)?, self.entry(right, &key)?)
            else {
                return Ok(false);
            };
            if !self.equal(&left, &right)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn binary(&mut self, of: Binary, left: &Data<'a>, right: &Data<'a>) -> Outcome<Data<'a>> {
        let order = |run: &mut Self, symbol: &str, is: fn(Ordering) -> bool| {
            run.read(left.as_text().unwrap_or_default())?;
            let order = left.order(right).map_err(|()| mismatch(symbol, &[left, right]))?;
            Ok(Data::Bool(order.is_some_and(is)))
        };
        match of {
            Binary::Equal => self.equal(left, right).map(Data::Bool),
            Binary::Unequal => self.equal(left, right).map(|equal| Data::Bool(!equal)),
            Binary::Less => order(self, "<", Ordering::is_lt),
            Binary::LessOrEqual => order(self, "<=", Ordering::is_le),
            Binary::Greater => order(self, ">", Ordering::is_gt),
            Binary::GreaterOrEqual => order(self, ">=", Ordering::is_ge),
            Binary::In => self.is_in(left, right).map(Data::Bool),
            Binary::Add => self.add(left, right),
            _ => arithmetic(of, left, right),
        }
    }

    fn is_in(&mut self, what: &Data<'a>, of: &Data<'a>) -> Outcome<bool> {
        if of.is_map() {
            return Ok(self.entry(of, what)?.is_some());
        }
        if !of.is_list() {
            return Err(mismatch("in", &[what, of]));
        }
        for index in 0..of.count().unwrap_or_default() {
            let element = of.element(index).unwrap_or(Data::Null);
            if self.equal(&element, what)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn add(&mut self, left: &Data<'a>, right: &Data<'a>) -> Outcome<Data<'a>> {
        if let (Some(left), Some(right)) = (left.as_text(), right.as_text()) {
            self.read(left)?;
            self.read(right)?;
            return Ok(Data::text(format!("{left}{right}")));
        }
        if left.is_list() && right.is_list() {
            self.spend(left.count().unwrap_or_default())?;
            self.spend(right.count().unwrap_or_default())?;
            let elements: Vec<_> = left.elements().into_iter().chain(right.elements()).collect();
            return Ok(Data::OwnList(elements.into()));
        }
        arithmetic(Binary::Add, left, right)
    }

    fn foreign(&mut self, name: &str, nodes: &'a [Node]) -> Outcome<Data<'a>> {
        let mut arguments = Vec::new();
        for node in nodes {
            arguments.push(self.eval(node)?.value());
        }
        let made = self.functions.and_then(|functions| functions(name, &arguments));
        made.map(Data::owned).ok_or_else(|| wrong(format!("{name} cannot be asked of this")))
    }

    fn call(&mut self, function: Function, arguments: &[Data<'a>]) -> Outcome<Data<'a>> {
        for text in arguments.iter().filter_map(Data::as_text) {
            self.read(text)?;
        }
        let [of, rest @ ..] = arguments else { return Err(wrong("a function takes nothing")) };
        let operands = || arguments.iter().collect::<Vec<_>>();
        let asks = |name: &str, is: fn(&str, &str) -> bool| match (
            of.as_text(),
            rest.first().and_then(Data::as_text),
        ) {
            (Some(of), Some(part)) => Ok(Data::Bool(is(of, part))),
            _ => Err(mismatch(name, &operands())),
        };
        match function {
            Function::Contains => asks("contains", |of, part| of.contains(part)),
            Function::StartsWith => asks("startsWith", |of, part| of.starts_with(part)),
            Function::EndsWith => asks("endsWith", |of, part| of.ends_with(part)),
            Function::Size => {
                let size = of.as_text().map(|text| text.chars().count()).or(of.count());
                let size = size.and_then(|size| i64::try_from(size).ok()).map(Data::Int);
                size.ok_or_else(|| mismatch("size", &operands()))
            }
            Function::Int => convert("int", of, |whole| i64::try_from(whole).ok().map(Data::Int)),
            Function::Uint => {
                convert("uint", of, |whole| u64::try_from(whole).ok().map(Data::Uint))
            }
            Function::Double => match of {
                Data::Double(double) => Ok(Data::Double(*double)),
                _ => match (of.whole(), of.as_text()) {
                    (Some(whole), _) => Ok(Data::Double(whole as f64)),
                    (None, Some(text)) => {
                        let none = |_| not_yet("double() meets a text that is no number");
                        text.parse().map(Data::Double).map_err(none)
                    }
                    (None, None) => Err(mismatch("double", &operands())),
                },
            },
            Function::Text => match of {
                Data::Text(_) | Data::OwnText(_) => Ok(of.clone()),
                Data::Bool(truth) => Ok(Data::text(truth.to_string())),
                Data::Double(double) => Ok(Data::text(double.to_string())),
                _ => {
                    let whole = of.whole().ok_or_else(|| mismatch("string", &operands()))?;
                    Ok(Data::text(whole.to_string()))
                }
            },
        }
    }

    fn each(&mut self, which: Loop, parts: &'a LoopParts) -> Outcome<Data<'a>> {
        let over = self.eval(&parts.over)?;
        let Some(count) = over.count() else { return Err(mismatch("a macro", &[&over])) };
        self.spend(count)?;
        let (mut taken, mut true_ones, mut error) = (Vec::new(), 0_usize, None);
        for element in over.elements() {
            self.scope.push(element.clone());
            let outcome = self.turn(which, parts);
            self.scope.pop();
            match outcome {
                Ok(Some(Data::Bool(truth))) if which == Loop::All || which == Loop::Exists => {
                    if truth == (which == Loop::Exists) {
                        return Ok(Data::Bool(truth));
                    }
                }
                Ok(Some(Data::Bool(truth))) if which == Loop::ExistsOne => {
                    true_ones += usize::from(truth);
                }
                Ok(Some(Data::Bool(true))) if which == Loop::Filter => taken.push(element),
                Ok(Some(made)) if which == Loop::Map => taken.push(made),
                Ok(_) => {}
                // An error counts as with && and ||.
                Err(Stop::Fault(fault)) if which == Loop::All || which == Loop::Exists => {
                    error = error.or(Some(Stop::Fault(fault)));
                }
                Err(stop) => return Err(stop),
            }
        }
        match (error, which) {
            (Some(error), _) => Err(error),
            (None, Loop::All | Loop::Exists) => Ok(Data::Bool(which == Loop::All)),
            (None, Loop::ExistsOne) => Ok(Data::Bool(true_ones == 1)),
            (None, Loop::Map | Loop::Filter) => Ok(Data::OwnList(taken.into())),
        }
    }

    /// The result of a loop for an element; `None` if it skips the element.
    fn turn(&mut self, which: Loop, parts: &'a LoopParts) -> Outcome<Option<Data<'a>>> {
        if let Some(filter) = &parts.filter
            && !self.condition("map", filter)?
        {
            return Ok(None);
        }
        match which {
            Loop::Map => self.eval(&parts.body).map(Some),
            _ => self.condition("a macro", &parts.body).map(|truth| Some(Data::Bool(truth))),
        }
    }
}
