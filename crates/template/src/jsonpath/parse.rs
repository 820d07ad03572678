//! Parses a template, as client-go's parser does: from left to right, looking ahead only for closing characters.

use super::error::ParseError;
use super::go;
use super::quote::unquote;
use super::syntax::{End, Node, Operator, Slice, Word};

type Parsed<T> = Result<T, ParseError>;

/// The text and the actions of a template.
pub(super) fn parse(text: &str) -> Parsed<Vec<Node>> {
    Parser { text, at: 0 }.template()
}

struct Parser<'t> {
    text: &'t str,
    /// The position, in bytes.
    at: usize,
}

impl<'t> Parser<'t> {
    fn template(mut self) -> Parsed<Vec<Node>> {
        let mut nodes = Vec::new();
        loop {
            let rest = self.rest();
            let length = rest.find('{').unwrap_or(rest.len());
            if length > 0 {
                nodes.push(Node::Text(rest[..length].to_owned()));
            }
            self.at += length;
            if self.next() != Some('{') {
                return Ok(nodes);
            }
            nodes.push(Node::Action(self.action()?));
        }
    }

    fn action(&mut self) -> Parsed<Vec<Node>> {
        let mut nodes = Vec::new();
        loop {
            if self.skip("}") {
                return Ok(nodes);
            }
            if self.skip("[?(") {
                nodes.push(self.filter()?);
                continue;
            }
            if self.skip("..") {
                self.descent(&mut nodes)?;
                continue;
            }
            let start = self.at;
            match self.next() {
                None | Some('\r' | '\n') => return Err(ParseError::Unclosed),
                Some(' ' | '@' | '$') => {}
                Some('[') => self.brackets(&mut nodes)?,
                Some(quote @ ('"' | '\'')) => nodes.push(self.quote(start, quote)?),
                Some('.') => nodes.push(self.field()),
                Some('+' | '-' | '0'..='9') => nodes.push(self.number(start)?),
                Some(first) if is_of_word(first) => nodes.push(self.word(start)),
                Some(other) => return Err(ParseError::Character(go::character(other))),
            }
        }
    }

    fn descent(&mut self, nodes: &mut Vec<Node>) -> Parsed<()> {
        if nodes.last() == Some(&Node::Descent) {
            return Err(ParseError::Descent);
        }
        nodes.push(Node::Descent);
        if self.rest().starts_with(is_of_word) {
            nodes.push(self.field());
        }
        Ok(())
    }

    /// Parses a field, after its dot. A backslash removes the special meaning of the character after it, and none is
    /// kept.
    fn field(&mut self) -> Node {
        let start = self.at;
        while let Some(next) = self.next() {
            if next == '\\' {
                self.next();
            } else if is_end(next) {
                self.at -= next.len_utf8();
                break;
            }
        }
        match &self.text[start..self.at] {
            "*" => Node::Wildcard,
            name => Node::Field(name.replace('\\', "")),
        }
    }

    fn word(&mut self, start: usize) -> Node {
        self.at += self.rest().find(is_end).unwrap_or(self.rest().len());
        match &self.text[start..self.at] {
            "true" => Node::Boolean(true),
            "false" => Node::Boolean(false),
            "range" => Node::Word(Word::Range),
            "end" => Node::Word(Word::End),
            other => Node::Word(Word::Other(other.to_owned())),
        }
    }

    fn number(&mut self, start: usize) -> Parsed<Node> {
        let is_other = |next: char| next != '.' && !next.is_ascii_digit();
        self.at += self.rest().find(is_other).unwrap_or(self.rest().len());
        let number = &self.text[start..self.at];
        if let Ok(integer) = number.parse() {
            return Ok(Node::Integer(integer));
        }
        let float = number.parse().ok().filter(|float: &f64| float.is_finite());
        float.map(Node::Float).ok_or_else(|| ParseError::Number(number.to_owned()))
    }

    fn quote(&mut self, start: usize, quote: char) -> Parsed<Node> {
        loop {
            let ends = self.rest().find([quote, '\n']).ok_or(ParseError::Quote)?;
            let is_escaped = self.text.as_bytes()[self.at + ends - 1] == b'\\';
            self.at += ends;
            if self.next() == Some('\n') {
                return Err(ParseError::Quote);
            }
            // A backslash that is itself escaped escapes here, too: so it is in client-go.
            if !is_escaped {
                return Ok(Node::Text(unquote(&self.text[start..self.at])?));
            }
        }
    }

    /// Parses an index, a slice or keys, after the bracket.
    fn brackets(&mut self, nodes: &mut Vec<Node>) -> Parsed<()> {
        let length = self.rest().find([']', '\n']).ok_or(ParseError::Array)?;
        let text = &self.rest()[..length];
        self.at += length;
        if !self.skip("]") {
            return Err(ParseError::Array);
        }
        if text.contains(',') {
            let members = text.split(',').map(|text| format!("[{}]", text.trim_matches(' ')));
            let members = members.map(|text| within(&text)).collect::<Parsed<_>>()?;
            nodes.push(Node::Union(members));
        } else if let Some(key) = key(text) {
            nodes.extend(within(&format!(".{key}"))?);
        } else {
            nodes.push(Node::Slice(slice(text)?));
        }
        Ok(())
    }

    /// Parses a filter, after its `[?(`. It ends with the first `)` that is not within the first quotes, and compares
    /// at the first operator, in quotes or not.
    fn filter(&mut self) -> Parsed<Node> {
        let text = self.filter_text()?;
        let operator = text.find(is_of_operator).filter(|at| *at > 0);
        let parts = operator.and_then(|at| {
            let (left, rest) = text.split_at(at);
            let length = rest.find(|next| !is_of_operator(next)).unwrap_or(rest.len() - 1);
            // An operator at the end counts as a side.
            (length > 0).then(|| (left, &rest[..length], &rest[length..]))
        });
        let Some((left, operator, right)) = parts else {
            let left = within(text)?;
            return Ok(Node::Filter { left, operator: Operator::Exists, right: Vec::new() });
        };
        let operator = match operator {
            "==" => Operator::Equal,
            "!=" => Operator::NotEqual,
            "<" => Operator::Less,
            "<=" => Operator::LessOrEqual,
            ">" => Operator::Greater,
            ">=" => Operator::GreaterOrEqual,
            other => Operator::Other(other.to_owned()),
        };
        Ok(Node::Filter { left: within(left)?, operator, right: within(right)? })
    }

    fn filter_text(&mut self) -> Parsed<&'t str> {
        let start = self.at;
        let mut before = '(';
        let mut opened = None;
        let mut closed = false;
        loop {
            let next = self.next().ok_or(ParseError::Filter)?;
            match next {
                '\n' => return Err(ParseError::Filter),
                '"' | '\'' => match opened {
                    None => opened = Some(next),
                    Some(quote) => closed |= quote == next && before != '\\',
                },
                ')' if opened.is_some() == closed => break,
                _ => {}
            }
            before = next;
        }
        let text = &self.text[start..self.at - 1];
        if self.skip("]") { Ok(text) } else { Err(ParseError::FilterEnd) }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn skip(&mut self, text: &str) -> bool {
        let skips = self.rest().starts_with(text);
        if skips {
            self.at += text.len();
        }
        skips
    }
}

/// Parses the content of brackets. A brace in it ends it, and the rest is checked and ignored, as in client-go.
///
/// The recursion is not deep: keys and unions end with the first `]`, so there are no brackets in them. Filters end
/// with the first `)` outside of their first quotes, so nested filters are within the quotes of all those around them,
/// and there are two kinds of quotes: no more than three filters are nested.
fn within(text: &str) -> Parsed<Vec<Node>> {
    match parse(&format!("{{{text}}}"))?.into_iter().next() {
        Some(Node::Action(nodes)) => Ok(nodes),
        _ => Ok(Vec::new()),
    }
}

/// A key in single quotes, or, which client-go does not accept, in double ones.
fn key(text: &str) -> Option<&str> {
    let of = |quote: char| {
        let within = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!within.contains(quote)).then_some(within)
    };
    of('\'').or_else(|| of('"'))
}

fn slice(text: &str) -> Parsed<Slice> {
    if text == "*" {
        return Ok(Slice::ALL);
    }
    let mut parts = text.split(':');
    let start = parts.next().unwrap_or_default();
    let (end, step) = (parts.next(), parts.next());
    let are_numbers = [Some(start), end, step].into_iter().flatten().all(is_number_or_nothing);
    if !are_numbers || parts.next().is_some() {
        return Err(ParseError::Index(text.to_owned()));
    }
    let number = |part: &str| match part {
        "" => Ok(None),
        part => part.parse().map(Some).map_err(|_| ParseError::IndexNumber(part.to_owned())),
    };
    Ok(Slice {
        start: number(start)?.unwrap_or(0),
        end: match end {
            None => End::Single,
            Some(end) => number(end)?.map_or(End::Open, End::Before),
        },
        step: step.map(number).transpose()?.flatten(),
    })
}

fn is_number_or_nothing(part: &str) -> bool {
    part.strip_prefix('-').unwrap_or(part).bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a word may begin with a character.
fn is_of_word(next: char) -> bool {
    next == '_' || next.is_alphabetic() || next.is_ascii_digit()
}

/// Whether a character ends a field or a word.
fn is_end(next: char) -> bool {
    matches!(next, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn is_of_operator(next: char) -> bool {
    matches!(next, '!' | '<' | '>' | '=')
}
