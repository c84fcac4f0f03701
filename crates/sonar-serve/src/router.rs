//! The addresses of a page, and what every request has to pass.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{RawQuery, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, HeaderName, LOCATION, REFERRER_POLICY,
    SET_COOKIE, TRANSFER_ENCODING, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::answer::{AnswerForm, StaticAnswer, takes_gzip};
use crate::documents::{DocumentKind, late, make};
use crate::hosts::{is_asked_by_tls, is_same_origin};
use crate::limits::{PageRefusal, RequestBudget};
use crate::live;
use crate::openapi;
use crate::page::ServedPage;
use crate::parameters::Parameters;
use crate::problem::PageProblem;
use crate::site::ICON;

/// The web app: it says nothing about the history, so everybody may have it.
const APP: &str = "/";
/// The description of the API: like the app, it says nothing about the history.
const OPENAPI: &str = "/api/v1/openapi.json";
/// Announces new windows.
const LIVE: &str = "/api/v1/live";
/// Where a link opens a session.
const SESSION: &str = "/api/v1/session";

/// What every answer has: a browser runs nothing in it, shows it in no frame of another page, and does not keep it, unless
/// the answer has a tag. The app has a policy of its own.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (CACHE_CONTROL, "no-store"),
];

/// The addresses of a page, below its path.
pub fn router(page: &Arc<ServedPage>) -> Router {
    let path = &page.site.path;
    let mut router = Router::new();
    for kind in DocumentKind::ALL {
        let answer = move |State(page): State<Arc<ServedPage>>,
                           RawQuery(query): RawQuery,
                           headers: HeaderMap| async move {
            answer(page, kind, query.as_deref(), &headers).await
        };
        router = router.route(&path.with(kind.path()), get(answer));
    }
    router = router.route(&path.with(LIVE), get(live::follow));
    // What follows needs no session.
    router = router
        .route_layer(from_fn_with_state(page.clone(), only_readers))
        .route(&path.with(SESSION), post(open_session))
        .route(ICON, get(async || StatusCode::NO_CONTENT))
        .route(&path.with(APP), get(app))
        .route(&path.with(OPENAPI), get(describe));
    if !path.is_root() {
        router = router.route(path.as_str(), get(to_app));
    }
    router
        .method_not_allowed_fallback(|| async {
            let problem = PageProblem::new(PageRefusal::Address, "this address does not take this method");
            let mut response = problem.into_response();
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            response
        })
        .fallback(|| async { PageProblem::new(PageRefusal::Address, "there is nothing at this address") })
        .layer(from_fn_with_state(page.clone(), every_request))
        .with_state(page.clone())
}

/// Refuses requests that are not meant for this page; counts everything that is refused.
async fn every_request(State(page): State<Arc<ServedPage>>, request: Request, next: Next) -> Response {
    let mut response = if !page.site.hosts.accepts(request.headers(), request.uri()) {
        let words = "this page is not served under this name: use an address of loopback, or a name that was configured";
        PageProblem::new(PageRefusal::Host, words).into_response()
    } else if has_body(request.headers()) {
        PageProblem::new(PageRefusal::Body, "no address of this page takes a body").into_response()
    } else {
        next.run(request).await
    };
    if let Some(kind) = response.extensions().get::<PageRefusal>() {
        page.refused.add(*kind);
    }
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

async fn app(State(page): State<Arc<ServedPage>>, headers: HeaderMap) -> Response {
    let mut response = page.app.html.respond("text/html; charset=utf-8", &headers);
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, page.app.policy.clone());
    response
}

/// The addresses of the app are relative to its own, which therefore ends with `/`. So is this one: a reverse proxy may show
/// the page below another path.
async fn to_app(State(page): State<Arc<ServedPage>>, RawQuery(query): RawQuery) -> Response {
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    let folder = page.site.path.as_str().rsplit('/').next().unwrap_or_default();
    match HeaderValue::try_from(format!("{folder}/{query}")) {
        Ok(place) => (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, place)]).into_response(),
        Err(error) => PageProblem::new(PageRefusal::Address, error.to_string()).into_response(),
    }
}

async fn describe(State(page): State<Arc<ServedPage>>, headers: HeaderMap) -> Result<Response, PageProblem> {
    let description = match page.description.get() {
        Some(known) => known,
        None => {
            let made = StaticAnswer::new(&openapi::document(&page.site.path));
            let made = made.map_err(|error| PageProblem::failed(&error))?;
            page.description.get_or_init(|| made)
        }
    };
    Ok(description.respond("application/json", &headers))
}

fn has_body(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING) || headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0")
}

/// Lets only those pass who may read.
async fn only_readers(
    State(page): State<Arc<ServedPage>>,
    request: Request,
    next: Next,
) -> Result<Response, PageProblem> {
    own_page(request.headers())?;
    page.access.admits(request.headers(), page.history.now())?;
    in_time(&page.budget)?;
    Ok(next.run(request).await)
}

async fn open_session(
    State(page): State<Arc<ServedPage>>,
    headers: HeaderMap,
) -> Result<Response, PageProblem> {
    own_page(&headers)?;
    in_time(&page.sessions)?;
    let cookie = page.access.open_session(&headers, page.history.now())?;
    let is_secure = page.site.tls.is_some() || is_asked_by_tls(&headers);
    let cookie = cookie.header(is_secure);
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response())
}

fn own_page(headers: &HeaderMap) -> Result<(), PageProblem> {
    if is_same_origin(headers) {
        return Ok(());
    }
    Err(PageProblem::new(
        PageRefusal::Origin,
        "another page may not ask this one; a reverse proxy must pass on the Host of the browser",
    ))
}

fn in_time(budget: &RequestBudget) -> Result<(), PageProblem> {
    if budget.take(Instant::now()) {
        return Ok(());
    }
    Err(PageProblem::new(PageRefusal::Rate, "too many requests in a second: try again in a second"))
}

/// Waits for a turn, and makes a document in a thread that may block.
async fn answer(
    page: Arc<ServedPage>,
    kind: DocumentKind,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<Response, PageProblem> {
    let parameters = Parameters::parse(query)?;
    let busy =
        || PageProblem::new(PageRefusal::Busy, "too many answers are being made: try again in a second");
    let place = page.places.clone().try_acquire_owned().map_err(|_| busy())?;
    let patience = page.limits.answer_time;
    let work = async {
        let is_of_this_second = matches!(kind, DocumentKind::Status | DocumentKind::Now);
        let newest_ns = if is_of_this_second { None } else { page.newest_end_ns().await };
        let form = AnswerForm {
            is_packed: takes_gzip(headers),
            is_tagged: newest_ns.is_some_and(|end_ns| parameters.is_closed(end_ns)),
        };
        // What identifies an answer as long as no window is added; `None` if it must be made each time.
        let asked = newest_ns.map(|end_ns| {
            let coding = if form.is_packed { "gzip" } else { "identity" };
            format!("{end_ns} {coding} {}?{}", kind.path(), query.unwrap_or_default())
        });
        let known = || page.recent.find(asked.as_deref()?, Instant::now());
        if let Some(answer) = known() {
            return Ok::<_, PageProblem>(answer);
        }
        let turn = page.turns.clone().acquire_owned().await.map_err(|_| busy())?;
        // Somebody else may have asked the same.
        if let Some(answer) = known() {
            return Ok(answer);
        }
        let page = page.clone();
        let made = spawn_blocking(move || {
            // Held until the history is read no more, even if nobody waits for the answer any longer.
            let _held = [place, turn];
            let answer = make(&page, kind, parameters, form)?;
            // Before the turn ends: whoever waits for one may ask the same.
            if let Some(asked) = asked {
                page.recent.keep(asked, Instant::now(), answer.clone());
            }
            Ok(answer)
        });
        made.await.map_err(|error| PageProblem::failed(&error))?
    };
    let answer = timeout(patience, work).await.map_err(|_| late())??;
    Ok(answer.respond(kind.media_type(), headers))
}
