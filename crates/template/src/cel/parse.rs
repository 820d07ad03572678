//! The parser of CEL: turns tokens into a tree whose names are all known and whose depth is bounded.

use super::DEPTH;
use super::lex::{Token, Word};
use super::value::Data;

/// An expression, and its depth.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) expr: Expr,
    depth: u16,
}

#[derive(Debug)]
pub(super) enum Expr {
    Literal(Data<'static>),
    /// A variable, by its place in the scope; the first is `self`, where there is one.
    Variable(usize),
    Field(Box<Node>, String),
    Has(Box<Node>, String),
    Index(Box<[Node; 2]>),
    List(Vec<Node>),
    /// Keys and values in turn.
    Map(Vec<Node>),
    Not(Box<Node>),
    Negative(Box<Node>),
    All(Vec<Node>),
    Any(Vec<Node>),
    Binary(Binary, Box<[Node; 2]>),
    Choice(Box<[Node; 3]>),
    Call(Function, Vec<Node>),
    /// A call of a function beyond those of the language.
    Foreign(String, Vec<Node>),
    Loop(Loop, Box<LoopParts>),
}

#[derive(Debug)]
pub(super) struct LoopParts {
    pub(super) over: Node,
    /// The condition for the elements that a `map` takes.
    pub(super) filter: Option<Node>,
    pub(super) body: Node,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    Int,
    Uint,
    Double,
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loop {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

/// The binary operators by how strongly they bind; weaker ones first.
const BINARIES: [&[(&str, Binary)]; 3] = [
    &[
        ("==", Binary::Equal),
        ("!=", Binary::Unequal),
        ("<", Binary::Less),
        ("<=", Binary::LessOrEqual),
        (">", Binary::Greater),
        (">=", Binary::GreaterOrEqual),
        ("in", Binary::In),
    ],
    &[("+", Binary::Add), ("-", Binary::Subtract)],
    &[("*", Binary::Multiply), ("/", Binary::Divide), ("%", Binary::Remainder)],
];

/// Parses an expression. `names`: the variables. `is_open`: whether unknown functions are accepted.
pub(super) fn parse(tokens: &[Token], names: &[&str], is_open: bool) -> Result<Node, String> {
    let scope = names.iter().map(|name| (*name).to_owned()).collect();
    let mut parser = Parser { tokens, at: 0, open: 0, scope, is_open };
    let node = parser.expression()?;
    match parser.tokens.get(parser.at) {
        None => Ok(node),
        Some(_) => Err(parser.wrong("an operator or the end is expected")),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    /// How many nested expressions are being parsed.
    open: u16,
    scope: Vec<String>,
    is_open: bool,
}

type Parsed = Result<Node, String>;

impl Parser<'_> {
    fn wrong(&self, what: &str) -> String {
        match self.tokens.get(self.at) {
            Some(token) => format!("at character {}: {what}", token.at),
            None => format!("at the end: {what}"),
        }
    }

    fn word(&self) -> Option<&Word> {
        self.tokens.get(self.at).map(|token| &token.word)
    }

    fn takes(&mut self, symbol: &str) -> bool {
        let found = match self.word() {
            Some(Word::Symbol(word)) => *word == symbol,
            Some(Word::Name(word)) => symbol == "in" && word == "in",
            _ => false,
        };
        self.at += usize::from(found);
        found
    }

    fn expects(&mut self, symbol: &str) -> Result<(), String> {
        match self.takes(symbol) {
            true => Ok(()),
            false => Err(self.wrong(&format!("`{symbol}` is expected"))),
        }
    }

    fn name(&mut self) -> Result<String, String> {
        match self.word().cloned() {
            Some(Word::Name(name)) => {
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.wrong("a name is expected")),
        }
    }

    /// Builds a node on others of these depths; an error if it is too deep.
    fn on(&self, depths: impl IntoIterator<Item = u16>, expr: Expr) -> Parsed {
        let depth = depths.into_iter().max().unwrap_or(0) + 1;
        match depth > DEPTH {
            true => Err(self.wrong(&format!("it nests deeper than {DEPTH} levels"))),
            false => Ok(Node { expr, depth }),
        }
    }

    fn expression(&mut self) -> Parsed {
        self.open += 1;
        if self.open > DEPTH {
            return Err(self.wrong(&format!("it nests deeper than {DEPTH} levels")));
        }
        let condition = self.many("||", Self::and, Expr::Any)?;
        let node = match self.takes("?") {
            false => condition,
            true => {
                let yes = self.many("||", Self::and, Expr::Any)?;
                self.expects(":")?;
                let no = self.expression()?;
                let depths = [condition.depth, yes.depth, no.depth];
                self.on(depths, Expr::Choice(Box::new([condition, yes, no])))?
            }
        };
        self.open -= 1;
        Ok(node)
    }

    fn and(&mut self) -> Parsed {
        self.many("&&", |parser| parser.binary(0), Expr::All)
    }

    /// Parses a row of the same operator as one level, so that fifty conditions are allowed.
    fn many(
        &mut self,
        symbol: &str,
        next: fn(&mut Self) -> Parsed,
        of: fn(Vec<Node>) -> Expr,
    ) -> Parsed {
        let first = next(self)?;
        if !self.takes(symbol) {
            return Ok(first);
        }
        let mut nodes = vec![first, next(self)?];
        while self.takes(symbol) {
            nodes.push(next(self)?);
        }
        let depths: Vec<u16> = nodes.iter().map(|node| node.depth).collect();
        self.on(depths, of(nodes))
    }

    fn binary(&mut self, strength: usize) -> Parsed {
        let Some(binaries) = BINARIES.get(strength) else { return self.unary() };
        let mut left = self.binary(strength + 1)?;
        while let Some((_, binary)) = binaries.iter().find(|(symbol, _)| self.takes(symbol)) {
            let right = self.binary(strength + 1)?;
            let depths = [left.depth, right.depth];
            left = self.on(depths, Expr::Binary(*binary, Box::new([left, right])))?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let mut nots = 0_usize;
        while self.takes("!") {
            nots += 1;
        }
        let mut minuses = 0_usize;
        while nots == 0 && self.takes("-") {
            minuses += 1;
        }
        let literal = match self.word() {
            // The least integer has no positive counterpart.
            Some(Word::Int(int)) if minuses % 2 == 1 => 0_i64.checked_sub_unsigned(*int),
            _ => None,
        };
        let node = match literal {
            Some(int) => {
                (self.at, minuses) = (self.at + 1, 0);
                let literal = self.on([], Expr::Literal(Data::Int(int)))?;
                self.members(literal)?
            }
            None => {
                let primary = self.primary()?;
                self.members(primary)?
            }
        };
        // Two signs cancel each other, except for the check whether they may precede this at all.
        let times = |count: usize| if count == 0 { 0 } else { 2 - count % 2 };
        let mut node = node;
        for _ in 0..times(nots) {
            node = self.on([node.depth], Expr::Not(Box::new(node)))?;
        }
        for _ in 0..times(minuses) {
            node = self.on([node.depth], Expr::Negative(Box::new(node)))?;
        }
        Ok(node)
    }

    fn members(&mut self, mut node: Node) -> Parsed {
        loop {
            node = if self.takes("[") {
                let index = self.expression()?;
                self.expects("]")?;
                self.on([node.depth, index.depth], Expr::Index(Box::new([node, index])))?
            } else if self.takes(".") {
                let name = self.name()?;
                match self.takes("(") {
                    true => self.method(node, &name)?,
                    false => self.on([node.depth], Expr::Field(Box::new(node), name))?,
                }
            } else {
                return Ok(node);
            };
        }
    }

    fn primary(&mut self) -> Parsed {
        let Some(word) = self.word().cloned() else {
            return Err(self.wrong("something is missing"));
        };
        if let Word::Symbol(symbol) = word {
            return self.bracket(symbol);
        }
        self.at += 1;
        let literal = match word {
            Word::Text(text) => Data::text(text),
            Word::Uint(uint) => Data::Uint(uint),
            Word::Double(double) => Data::Double(double),
            Word::Int(int) => match i64::try_from(int) {
                Ok(int) => Data::Int(int),
                Err(_) => return Err(self.wrong_at(1, "it is no number that can be held")),
            },
            Word::Name(name) => match name.as_str() {
                "true" => Data::Bool(true),
                "false" => Data::Bool(false),
                "null" => Data::Null,
                _ if self.takes("(") => return self.function(&name),
                _ => {
                    let place = self.scope.iter().rposition(|known| *known == name);
                    let none = || self.wrong_at(1, "there is no such name; the object is `self`");
                    return self.on([], Expr::Variable(place.ok_or_else(none)?));
                }
            },
            Word::Symbol(_) => return Err(self.wrong_at(1, "something is missing")),
        };
        self.on([], Expr::Literal(literal))
    }

    /// An error about the word `back` places before the next.
    fn wrong_at(&self, back: usize, what: &str) -> String {
        let token = self.tokens.get(self.at.saturating_sub(back));
        format!("at character {}: {what}", token.map_or(0, |token| token.at))
    }

    fn bracket(&mut self, symbol: &str) -> Parsed {
        let wrong = self.wrong("a value is expected");
        self.at += 1;
        match symbol {
            "(" => {
                let node = self.expression()?;
                self.expects(")")?;
                Ok(node)
            }
            "[" => {
                let elements = self.row("]", false)?;
                let depths: Vec<u16> = elements.iter().map(|node| node.depth).collect();
                self.on(depths, Expr::List(elements))
            }
            "{" => {
                let entries = self.row("}", true)?;
                let depths: Vec<u16> = entries.iter().map(|node| node.depth).collect();
                self.on(depths, Expr::Map(entries))
            }
            _ => Err(wrong),
        }
    }

    /// Parses expressions between commas, up to the end; in pairs, keys and values.
    fn row(&mut self, end: &str, pairs: bool) -> Result<Vec<Node>, String> {
        let mut nodes = Vec::new();
        while !self.takes(end) {
            nodes.push(self.expression()?);
            if pairs {
                self.expects(":")?;
                nodes.push(self.expression()?);
            }
            if !self.takes(",") {
                self.expects(end)?;
                break;
            }
        }
        Ok(nodes)
    }

    fn function(&mut self, name: &str) -> Parsed {
        let wrong = self.wrong_at(2, "there is no such function");
        if name == "has" {
            let wrong = self.wrong("has() takes a field, as in has(self.status)");
            let argument = self.expression()?;
            self.expects(")")?;
            let Expr::Field(of, field) = argument.expr else { return Err(wrong) };
            return self.on([of.depth], Expr::Has(of, field));
        }
        let function = match name {
            "size" => Function::Size,
            "int" => Function::Int,
            "uint" => Function::Uint,
            "double" => Function::Double,
            "string" => Function::Text,
            _ if self.is_open => return self.foreign(name, None),
            _ => return Err(wrong),
        };
        let arguments = self.row(")", false)?;
        self.call(function, arguments, 1)
    }

    fn call(&self, function: Function, arguments: Vec<Node>, takes: usize) -> Parsed {
        if arguments.len() != takes {
            return Err(self.wrong_at(1, "this function takes another number of arguments"));
        }
        let depths: Vec<u16> = arguments.iter().map(|node| node.depth).collect();
        self.on(depths, Expr::Call(function, arguments))
    }

    fn method(&mut self, of: Node, name: &str) -> Parsed {
        let wrong = self.wrong_at(2, "there is no such function");
        let (function, takes) = match name {
            "size" => (Function::Size, 1),
            "contains" => (Function::Contains, 2),
            "startsWith" => (Function::StartsWith, 2),
            "endsWith" => (Function::EndsWith, 2),
            "all" => return self.each(Loop::All, of),
            "exists" => return self.each(Loop::Exists, of),
            "exists_one" => return self.each(Loop::ExistsOne, of),
            "map" => return self.each(Loop::Map, of),
            "filter" => return self.each(Loop::Filter, of),
            _ if self.is_open => return self.foreign(name, Some(of)),
            _ => return Err(wrong),
        };
        let mut arguments = vec![of];
        arguments.extend(self.row(")", false)?);
        self.call(function, arguments, takes)
    }

    fn foreign(&mut self, name: &str, of: Option<Node>) -> Parsed {
        let mut arguments: Vec<Node> = of.into_iter().collect();
        arguments.extend(self.row(")", false)?);
        let depths: Vec<u16> = arguments.iter().map(|node| node.depth).collect();
        self.on(depths, Expr::Foreign(name.to_owned(), arguments))
    }

    /// Parses the rest of a macro: a name, and the expression for each element by that name.
    fn each(&mut self, which: Loop, over: Node) -> Parsed {
        let name = self.name()?;
        self.expects(",")?;
        self.scope.push(name);
        let mut body = self.expression()?;
        let mut filter = None;
        if which == Loop::Map && self.takes(",") {
            filter = Some(std::mem::replace(&mut body, self.expression()?));
        }
        self.scope.pop();
        self.expects(")")?;
        let depths = [over.depth, body.depth, filter.as_ref().map_or(0, |node| node.depth)];
        self.on(depths, Expr::Loop(which, Box::new(LoopParts { over, filter, body })))
    }
}
