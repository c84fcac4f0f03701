//! Connections: how many there may be, and how long they may take.

use std::io::{self, Write};
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep};

use crate::limits::PageRefusal;
use crate::page::ServedPage;
use crate::prepare::keep_prepared;
use crate::router::router;

/// How often it checks whether to stop.
const LOOK: Duration = Duration::from_millis(200);
/// How long nothing is accepted after that failed: until then some file descriptor may be free.
const PAUSE: Duration = Duration::from_millis(100);
/// The least bytes that hyper reads of the head of a request.
const MIN_HEAD_BYTES: usize = 8 << 10;
/// Threads that read the history stay: starting them again would take longer than keeping these few.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);
/// How long an answer may hold up the end.
const PATIENCE: Duration = Duration::from_secs(1);

const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 1\r\n\
    Connection: close\r\nContent-Length: 21\r\n\r\ntoo many connections\n";

/// Serves a page at an open socket until `stop` is set. The calling thread does all work but that of reading the history,
/// for which it starts threads.
///
/// # Errors
/// The socket cannot be used, or the runtime cannot be made.
pub fn serve(listener: TcpListener, page: &Arc<ServedPage>, stop: &AtomicBool) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(page.limits.answers.max(1))
        .thread_name("page-answer")
        .thread_keep_alive(FOR_EVER)
        .build()?;
    let result = runtime.block_on(accept_all(listener, page, stop));
    runtime.shutdown_timeout(PATIENCE);
    result
}

async fn accept_all(listener: TcpListener, page: &Arc<ServedPage>, stop: &AtomicBool) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let connections = Arc::new(Semaphore::new(page.limits.connections));
    tokio::spawn(keep_prepared(Arc::clone(page)));
    let service = TowerToHyperService::new(router(page));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(page.limits.head_time)
        .max_buf_size(page.limits.head_bytes.max(MIN_HEAD_BYTES));
    while !stop.load(Ordering::Relaxed) {
        let stream = match tokio::time::timeout(LOOK, listener.accept()).await {
            Err(_) => continue,
            Ok(Err(_)) => {
                sleep(PAUSE).await;
                continue;
            }
            Ok(Ok((stream, _))) => stream,
        };
        let Ok(held) = connections.clone().try_acquire_owned() else {
            page.refused.add(PageRefusal::Connections);
            // It does not wait for a client that does not take it right away.
            let _ = stream.into_std().and_then(|mut stream| stream.write(TOO_MANY_CONNECTIONS));
            continue;
        };
        // An answer is written at once.
        let _ = stream.set_nodelay(true);
        let is_asking = Arc::new(AtomicBool::new(false));
        let stream = ImpatientStream::new(stream, page.limits.write_time, is_asking.clone());
        let connection = http.serve_connection(TokioIo::new(stream), service.clone());
        let page = page.clone();
        tokio::spawn(async move {
            let result = connection.await;
            // One that is idle ends in the same way.
            if result.is_err_and(|error| is_slow(&error)) && is_asking.load(Ordering::Relaxed) {
                page.refused.add(PageRefusal::Slow);
            }
            drop(held);
        });
    }
    Ok(())
}

/// Whether a connection ended because its client sent or took nothing for some time.
fn is_slow(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    error.is_timeout() || source.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
}

/// A stream that fails once nothing of what is written has been taken for some time.
struct ImpatientStream<S> {
    stream: S,
    patience: Duration,
    /// Ends when the patience does; `None` while what is written is taken.
    waiting: Option<Pin<Box<Sleep>>>,
    /// Set while a request is read, or what is written is not taken.
    is_asking: Arc<AtomicBool>,
}

impl<S> ImpatientStream<S> {
    const fn new(stream: S, patience: Duration, is_asking: Arc<AtomicBool>) -> Self {
        Self { stream, patience, waiting: None, is_asking }
    }

    /// Passes on what a write came to, or fails if it has waited for too long.
    fn outcome<T>(&mut self, wrote: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        self.is_asking.store(wrote.is_pending(), Ordering::Relaxed);
        if wrote.is_ready() {
            self.waiting = None;
            return wrote;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ImpatientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before {
            self.is_asking.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ImpatientStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.outcome(wrote, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.outcome(wrote, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// A client that takes a byte at a time, until it takes nothing any more.
    struct LazyClient {
        takes: usize,
    }

    impl AsyncWrite for LazyClient {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            match self.takes.checked_sub(1) {
                Some(left) => {
                    self.takes = left;
                    Poll::Ready(Ok(1))
                }
                None => Poll::Pending,
            }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_client_that_takes_nothing_any_more_is_dropped() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let is_asking = Arc::new(AtomicBool::new(true));
        let mut stream = ImpatientStream::new(LazyClient { takes: 2 }, Duration::ZERO, is_asking.clone());
        runtime.block_on(async {
            let mut write =
                async || poll_fn(|context| Pin::new(&mut stream).poll_write(context, b"answer")).await;
            assert_eq!([write().await.unwrap(), write().await.unwrap()], [1, 1]);
            assert!(!is_asking.load(Ordering::Relaxed), "it took what was written");
            assert_eq!(write().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert!(is_asking.load(Ordering::Relaxed));
        });
    }

    #[test]
    fn the_message_is_as_long_as_it_says() {
        let text = std::str::from_utf8(TOO_MANY_CONNECTIONS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{text}");
    }
}
