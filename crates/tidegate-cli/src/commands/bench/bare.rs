//! The bare HTTP handler: the stack of the server without anything of Tidegate in it. It reads the body of an order and
//! answers `409`: what a refusal would cost if deciding it cost nothing.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpListener;

use crate::failure::{Failure, Result};
use crate::{output, runtime};

/// The body of an order.
#[derive(Deserialize)]
struct Order {
    order_id: String,
    buyer_id: String,
    lines: Vec<Line>,
}

/// A line of it.
#[derive(Deserialize)]
struct Line {
    sku: String,
    quantity: i64,
}

/// Listens on a free port of the loopback address until it is stopped.
///
/// # Errors
/// [`Failure::Work`] when it cannot.
pub fn serve() -> Result {
    runtime::start(None)?.block_on(async {
        tokio::select! {
            served = accept() => served.map_err(|e| Failure::Work(format!("the bare handler ended: {e}"))),
            () = runtime::interrupted() => Ok(()),
        }
    })
}

async fn accept() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    // Whoever started it waits for this line; when they have gone there is nobody to serve.
    let _ = output::line(format!("bare handler listening on http://{}", listener.local_addr()?));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
            // A client that goes ends its connection.
            let _ = connection.await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let (status, text) = match serde_json::from_slice::<Order>(&body) {
        Ok(order) => (StatusCode::CONFLICT, refusal(&order)),
        Err(_) => (StatusCode::BAD_REQUEST, String::new()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    Ok(response)
}

/// A problem document of the size the server sends.
fn refusal(order: &Order) -> String {
    let (sku, wanted) = order.lines.first().map_or(("", 0), |line| (line.sku.as_str(), line.quantity));
    format!(
        r#"{{"type":"/problems/insufficient-stock","title":"Not enough stock","status":409,"detail":"{wanted} of {sku} wanted by {}, 0 available; ask for less, or try again when orders have expired","code":"insufficient-stock","retryable":false,"sku":"{sku}","available":0,"order_id":"{}"}}"#,
        order.buyer_id, order.order_id
    )
}
