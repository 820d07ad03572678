//! Limits how long a connection waits for the other side when that should read or close.
//!
//! Reading: a client that sends requests and takes no answers would keep its connection, one of a
//! limited number, for as long as it likes. So a write that gets nowhere ends the connection.
//!
//! Closing: a request may be refused before its body has arrived (401, 413). If the connection were
//! then closed with bytes of the body unread, TCP would reset it, and the reset may overtake the
//! answer. So after the last answer the sending half is closed first, and what still arrives is
//! thrown away for a while (RFC 9112, 9.6).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long the other side may take to close its half.
const CLOSING: Duration = Duration::from_secs(2);

/// How many bytes are thrown away at most before the connection is closed.
const TOLERANCE: usize = 4 * 1024 * 1024;

/// A connection with limits to its patience.
pub(super) struct Patient<C> {
    connection: C,
    /// How long a write may make no progress.
    writing: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    end: End,
}

enum End {
    Open,
    Draining { until: Pin<Box<Sleep>>, left: usize },
    Over,
}

impl<C: AsyncRead + AsyncWrite + Unpin> Patient<C> {
    pub(super) fn new(connection: C, writing: Duration) -> Self {
        Self { connection, writing, stalled: None, end: End::Open }
    }

    /// The result of a write, or an error if writes have made no progress for too long.
    fn or_stalled<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(self.writing)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Patient<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(context, buffer)
    }
}

impl<C: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Patient<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write(context, bytes);
        self.or_stalled(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write_vectored(context, bytes);
        self.or_stalled(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.connection).poll_flush(context);
        self.or_stalled(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match &mut this.end {
                End::Open => {
                    let closed = Pin::new(&mut this.connection).poll_shutdown(context);
                    ready!(this.or_stalled(context, closed))?;
                    let until = Box::pin(sleep(CLOSING));
                    this.end = End::Draining { until, left: TOLERANCE };
                }
                End::Draining { until, left } => {
                    let mut space = [0; 4096];
                    let mut buffer = ReadBuf::new(&mut space);
                    match Pin::new(&mut this.connection).poll_read(context, &mut buffer) {
                        Poll::Ready(Ok(())) if (1..=*left).contains(&buffer.filled().len()) => {
                            *left -= buffer.filled().len();
                        }
                        // The other side has closed or failed, or sends without end.
                        Poll::Ready(_) => this.end = End::Over,
                        Poll::Pending => {
                            ready!(until.as_mut().poll(context));
                            this.end = End::Over;
                        }
                    }
                }
                End::Over => return Poll::Ready(Ok(())),
            }
        }
    }
}
