//! A page below a path, as a reverse proxy passes requests on.

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE};
use axum::http::{Request, StatusCode};
use sonar_serve::PageLimits;

use crate::support::{TestHistory, TestPage, at, get, post, site};

const PATH: &str = "/mongosonar";

fn page() -> TestPage {
    TestPage::at(site(PATH), TestHistory::hour(), PageLimits::default())
}

#[test]
fn all_addresses_are_below_the_path_and_nothing_is_beside_it() {
    let page = page();
    let description = page.read(&format!("{PATH}/api/v1/openapi.json")).json();
    assert_eq!(description["servers"][0]["url"], PATH);
    for path in description["paths"].as_object().unwrap().keys().filter(|path| !path.ends_with("shape")) {
        assert_eq!(page.read(&format!("{PATH}{path}")).status, StatusCode::OK, "{path}");
        assert_eq!(page.read(path).status, StatusCode::NOT_FOUND, "{path}");
    }
    let of = |path: &str| page.ask(get(path).body(Body::empty()).unwrap());
    assert_eq!(of("/mongosonar/").text, "<!doctype html>");
    assert_eq!(of("/mongosonar/api/v1/live").status, StatusCode::UNAUTHORIZED);
    for path in ["/", "/mongosonar/mongosonar/", "/mongosonarx/", "/MONGOSONAR/", "/api/v1/live"] {
        assert_eq!(of(path).status, StatusCode::NOT_FOUND, "{path}");
    }
    // Browsers ask for it at the root of a host.
    assert_eq!(of("/favicon.ico").status, StatusCode::NO_CONTENT);
    // Addresses that are relative to the path itself would lead beside it.
    for (asked, place) in [(PATH, "mongosonar/"), ("/mongosonar?view=queries", "mongosonar/?view=queries")] {
        let moved = of(asked);
        assert_eq!(
            (moved.status, moved.headers[LOCATION].to_str().unwrap()),
            (StatusCode::TEMPORARY_REDIRECT, place)
        );
    }
}

/// A request as a reverse proxy passes it on, with the name and the scheme that the browser has.
fn proxied(builder: axum::http::request::Builder, scheme: &str) -> axum::http::request::Builder {
    builder.header(HOST, "db1.example").header(ORIGIN, format!("{scheme}://db1.example"))
}

#[test]
fn a_session_holds_below_the_path_and_by_tls_if_the_browser_uses_that() {
    let page = page();
    for (scheme, is_secure) in [("https", true), ("http", false)] {
        let link = format!("Bearer {}", page.token.link_code(at(3_599)).unwrap());
        let opening = Request::post("/mongosonar/api/v1/session").header(AUTHORIZATION, link);
        let opened = page.ask(proxied(opening, scheme).body(Body::empty()).unwrap());
        assert_eq!(opened.status, StatusCode::NO_CONTENT);
        let cookie = opened.headers[SET_COOKIE].to_str().unwrap();
        let has = |part: &str| cookie.split("; ").any(|one| one == part);
        assert!(!cookie.contains("Path=") && has("HttpOnly") && has("SameSite=Strict"), "{cookie}");
        assert_eq!(has("Secure"), is_secure, "{cookie}");
        let asking =
            Request::get("/mongosonar/api/v1/status").header(COOKIE, cookie.split_once(';').unwrap().0);
        let answer = page.ask(proxied(asking, scheme).body(Body::empty()).unwrap());
        assert_eq!(answer.status, StatusCode::OK);
    }
    // A proxy that passes its own name on instead of the browser's.
    let link = format!("Bearer {}", page.token.link_code(at(3_599)).unwrap());
    let renamed = post("/mongosonar/api/v1/session").header(AUTHORIZATION, link);
    let renamed = page.ask(renamed.header(ORIGIN, "https://db1.example").body(Body::empty()).unwrap());
    assert_eq!(renamed.status, StatusCode::FORBIDDEN);
    assert!(renamed.text.contains("Host"), "it says what to configure: {}", renamed.text);
}
