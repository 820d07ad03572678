//! Plain templates: only text, and paths from field to field, with nothing that selects.

use super::JsonPath;
use super::syntax::Node;

/// A piece of a plain template.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Text without a brace, which stands for itself in a template.
    Text(&'a str),
    /// A path: the names of its fields.
    Path(Vec<&'a str>),
}

impl JsonPath {
    /// The pieces of a plain template; `None` if the template is not plain.
    pub(crate) fn pieces(&self) -> Option<Vec<Piece<'_>>> {
        self.nodes.iter().map(piece).collect()
    }
}

fn piece(node: &Node) -> Option<Piece<'_>> {
    match node {
        Node::Text(text) if !text.contains('{') => Some(Piece::Text(text)),
        Node::Action(nodes) => match nodes.as_slice() {
            [text @ Node::Text(_)] => piece(text),
            nodes => nodes.iter().map(field).collect::<Option<_>>().map(Piece::Path),
        },
        _ => None,
    }
}

fn field(node: &Node) -> Option<&str> {
    match node {
        Node::Field(name) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_fields_are_plain() {
        let path = JsonPath::parse(r#"http://{ $.spec['host'] }{"\n"}{.a.b\.c}"#).unwrap();
        let pieces = path.pieces().unwrap();
        let host = Piece::Path(vec!["spec", "host"]);
        let end = Piece::Path(vec!["a", "b.c"]);
        assert_eq!(pieces, [Piece::Text("http://"), host, Piece::Text("\n"), end]);
        for other in ["{.a[0]}", "{..a}", "{.*}", "{range .a}{end}", "{['a','b']}", r#"{"{"}"#] {
            assert_eq!(JsonPath::parse(other).unwrap().pieces(), None, "{other}");
        }
    }
}
