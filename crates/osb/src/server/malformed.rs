//! Adds a body to the refusals of the HTTP library itself, before there is a request: of a head that is no HTTP, or is
//! too large. The library answers with a status and no body; every refusal of this server says why, so these get a body
//! on their way out.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that gives bodiless refusals a body. Only the library writes such: all answers of this server
/// have one.
#[derive(Debug)]
pub(super) struct Explained<C> {
    connection: C,
    head_bytes: usize,
    /// The bytes to write in place of a refusal, how many of them are written, and the length of the refusal.
    instead: Option<(Vec<u8>, usize, usize)>,
}

impl<C> Explained<C> {
    /// Wraps a connection. `head_bytes` is the limit that the refusal of a head too large names.
    pub(super) fn new(connection: C, head_bytes: usize) -> Self {
        Self { connection, head_bytes, instead: None }
    }
}

/// The refusal with its body; `None` if it is not one that lacks it.
fn explained(answer: &[u8], head_bytes: usize) -> Option<Vec<u8>> {
    const EMPTY: &str = "content-length: 0\r\n";
    if !answer.starts_with(b"HTTP/1.1 4") {
        return None;
    }
    let head = std::str::from_utf8(answer).ok()?.strip_suffix("\r\n\r\n")?;
    let (status, _) = head.strip_prefix("HTTP/1.1 ")?.split_once(' ')?;
    let before = head.find(EMPTY)?;
    let (error, description) = match status {
        "400" => ("BadRequest", "the request's head is not HTTP/1.1".to_owned()),
        "414" => ("UriTooLong", "the request's target is too long".to_owned()),
        "431" => (
            "RequestHeaderFieldsTooLarge",
            format!("the request's head must have at most {head_bytes} bytes and 100 fields"),
        ),
        _ => return None,
    };
    let body = json!({"error": error, "description": description}).to_string();
    let (first, rest) = (&head[..before], &head[before + EMPTY.len()..]);
    let length = body.len();
    let answer = format!(
        "{first}content-type: application/json\r\ncontent-length: {length}\r\n{rest}\r\n\r\n{body}"
    );
    Some(answer.into_bytes())
}

impl<C: AsyncWrite + Unpin> Explained<C> {
    /// Writes the bytes that replace a refusal; `None` if there are none.
    fn substitute(
        &mut self,
        context: &mut Context<'_>,
        answer: &[u8],
    ) -> Poll<Option<io::Result<usize>>> {
        if self.instead.is_none() {
            let Some(text) = explained(answer, self.head_bytes) else { return Poll::Ready(None) };
            self.instead = Some((text, 0, answer.len()));
        }
        while let Some((text, written, length)) = &mut self.instead {
            if *written == text.len() {
                let length = *length;
                self.instead = None;
                return Poll::Ready(Some(Ok(length)));
            }
            let more = Pin::new(&mut self.connection).poll_write(context, &text[*written..]);
            match ready!(more) {
                Ok(0) => return Poll::Ready(Some(Err(io::ErrorKind::WriteZero.into()))),
                Ok(more) => *written += more,
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        Poll::Ready(None)
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Explained<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(context, buffer)
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Explained<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match ready!(self.substitute(context, bytes)) {
            Some(written) => Poll::Ready(written),
            None => Pin::new(&mut self.connection).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut filled = bytes.iter().filter(|slice| !slice.is_empty());
        if let (Some(only), None) = (filled.next(), filled.next())
            && let Some(written) = ready!(self.substitute(context, only))
        {
            return Poll::Ready(written);
        }
        Pin::new(&mut self.connection).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const REFUSAL: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
                           content-length: 0\r\ndate: Sat, 21 Nov 2026 00:00:00 GMT\r\n\r\n";

    #[test]
    fn only_refusals_without_a_body_are_given_one() {
        for (answer, has) in [
            (REFUSAL, true),
            (&REFUSAL.replace("431", "400"), true),
            (&REFUSAL.replace("431", "414"), true),
            (&REFUSAL.replace("431", "404"), false),
            (&REFUSAL.replace("431", "500"), false),
            (&REFUSAL.replace("length: 0", "length: 2"), false),
            (&REFUSAL.replace("\r\n\r\n", "\r\n"), false),
            ("HTTP/1.1 4", false),
            ("HTTP/1.1 400", false),
            ("", false),
        ] {
            assert_eq!(explained(answer.as_bytes(), 7).is_some(), has, "{answer}");
        }
    }

    #[tokio::test]
    async fn the_body_follows_in_however_small_pieces() {
        for capacity in [1, 3, 1024] {
            let (ours, mut theirs) = tokio::io::duplex(capacity);
            let mut explained = Explained::new(ours, 32_768);
            let write = async {
                explained.write_all(REFUSAL.as_bytes()).await.unwrap();
                explained.write_all(b"after").await.unwrap();
                drop(explained);
            };
            let mut seen = String::new();
            let ((), read) = tokio::join!(write, theirs.read_to_string(&mut seen));
            read.unwrap();
            let (head, body) = seen.split_once("\r\n\r\n").unwrap();
            let body = body.strip_suffix("after").unwrap();
            assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
            assert!(head.ends_with("GMT"), "{head}");
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            let description = body["description"].as_str().unwrap();
            assert!(description.contains("at most 32768 bytes"), "{description}");
        }
    }
}
