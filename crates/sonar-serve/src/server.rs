//! Connections: how many there may be, and how long they may take.

use std::io::{self, Write};
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::server::TlsStream;

use crate::limits::PageRefusal;
use crate::page::ServedPage;
use crate::prepare::keep_prepared;
use crate::router::router;
use crate::tls::PageTls;

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
    let server = ConnectionServer::new(page);
    while !stop.load(Ordering::Relaxed) {
        let stream = match timeout(LOOK, listener.accept()).await {
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
        let server = server.clone();
        tokio::spawn(async move {
            server.serve(stream).await;
            drop(held);
        });
    }
    Ok(())
}

/// Serves connections.
#[derive(Clone)]
struct ConnectionServer {
    page: Arc<ServedPage>,
    http: http1::Builder,
    service: TowerToHyperService<Router>,
}

impl ConnectionServer {
    fn new(page: &Arc<ServedPage>) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(page.limits.head_time)
            .max_buf_size(page.limits.head_bytes.max(MIN_HEAD_BYTES));
        Self { page: page.clone(), http, service: TowerToHyperService::new(router(page)) }
    }

    /// Serves a connection until it ends.
    async fn serve(&self, stream: tokio::net::TcpStream) {
        let client = Arc::<ClientActivity>::default();
        let stream = ImpatientStream::new(stream, self.page.limits.write_time, client.clone());
        match &self.page.site.tls {
            None => self.answer(stream, &client).await,
            Some(tls) => {
                if let Some(stream) = self.shake_hands(tls, stream, &client).await {
                    self.answer(stream, &client).await;
                }
            }
        }
    }

    /// Agrees with a client on TLS; `None` if that fails.
    async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        tls: &PageTls,
        stream: S,
        client: &ClientActivity,
    ) -> Option<TlsStream<S>> {
        let page = &self.page;
        if !page.handshakes.take(Instant::now()) {
            page.refused.add(PageRefusal::Handshake);
            return None;
        }
        match timeout(page.limits.head_time, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                // It has asked for nothing yet.
                client.is_asking.store(false, Ordering::Relaxed);
                Some(stream)
            }
            _ => {
                // One that said nothing at all has nothing that could be refused.
                if client.has_spoken.load(Ordering::Relaxed) {
                    page.refused.add(PageRefusal::Handshake);
                }
                None
            }
        }
    }

    /// Answers the requests of a connection.
    async fn answer<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, client: &ClientActivity) {
        let result = self.http.serve_connection(TokioIo::new(stream), self.service.clone()).await;
        // One that is idle ends in the same way.
        if result.is_err_and(|error| is_slow(&error)) && client.is_asking.load(Ordering::Relaxed) {
            self.page.refused.add(PageRefusal::Slow);
        }
    }
}

/// Whether a connection ended because its client sent or took nothing for some time.
fn is_slow(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    error.is_timeout() || source.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
}

/// What the client of a connection does.
#[derive(Debug, Default)]
struct ClientActivity {
    /// It sends a request, or does not take what is written.
    is_asking: AtomicBool,
    /// It has sent something.
    has_spoken: AtomicBool,
}

/// A stream that fails once nothing of what is written has been taken for some time.
struct ImpatientStream<S> {
    stream: S,
    patience: Duration,
    /// Ends when the patience does; `None` while what is written is taken.
    waiting: Option<Pin<Box<Sleep>>>,
    client: Arc<ClientActivity>,
}

impl<S> ImpatientStream<S> {
    const fn new(stream: S, patience: Duration, client: Arc<ClientActivity>) -> Self {
        Self { stream, patience, waiting: None, client }
    }

    /// Passes on what a write came to, or fails if it has waited for too long.
    fn outcome<T>(&mut self, wrote: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        self.client.is_asking.store(wrote.is_pending(), Ordering::Relaxed);
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
            self.client.is_asking.store(true, Ordering::Relaxed);
            self.client.has_spoken.store(true, Ordering::Relaxed);
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
        let client =
            Arc::new(ClientActivity { is_asking: AtomicBool::new(true), ..ClientActivity::default() });
        let mut stream = ImpatientStream::new(LazyClient { takes: 2 }, Duration::ZERO, client.clone());
        runtime.block_on(async {
            let mut write =
                async || poll_fn(|context| Pin::new(&mut stream).poll_write(context, b"answer")).await;
            assert_eq!([write().await.unwrap(), write().await.unwrap()], [1, 1]);
            assert!(!client.is_asking.load(Ordering::Relaxed), "it took what was written");
            assert_eq!(write().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert!(client.is_asking.load(Ordering::Relaxed));
        });
    }

    #[test]
    fn the_message_is_as_long_as_it_says() {
        let text = std::str::from_utf8(TOO_MANY_CONNECTIONS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{text}");
    }
}
