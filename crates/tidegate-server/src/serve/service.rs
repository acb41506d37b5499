//! hyper's service: a request in, a response out, its connection busy in between.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;

use super::connection::{Busy, Connection};
use crate::app::App;
use crate::pipeline;
use crate::reply::Body;

/// The service of one connection.
pub(crate) struct HttpService {
    app: Arc<App>,
    connection: Arc<Connection>,
}

impl HttpService {
    /// Of this connection.
    pub(crate) fn new(app: Arc<App>, connection: Arc<Connection>) -> Self {
        Self { app, connection }
    }
}

impl hyper::service::Service<Request<Incoming>> for HttpService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let busy = Busy::begin(&self.connection);
        let app = Arc::clone(&self.app);
        Box::pin(async move {
            let mut response = pipeline::answer(&app, request).await;
            response.body_mut().until_sent(busy);
            Ok(response)
        })
    }
}
