//! Every problem the server can answer with: one table, read by the responses, their pages, the OpenAPI document and
//! `docs/reference/problems.md`.

/// A kind of problem. `code` is contract.
#[derive(Debug)]
pub struct Kind {
    /// Its name on the wire, and its page: `/problems/{code}`.
    pub code: &'static str,
    /// The status it is answered with.
    pub status: u16,
    /// What it is, in a few words.
    pub title: &'static str,
    /// Whether the same request may succeed later without any change.
    pub retryable: bool,
    /// What it means.
    pub meaning: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

macro_rules! kinds {
    ($($name:ident $code:literal $status:literal $title:literal $retryable:literal $meaning:literal $remedy:literal)*) => {
        $(
            #[doc = $title]
            pub static $name: Kind = Kind {
                code: $code, status: $status, title: $title, retryable: $retryable, meaning: $meaning, remedy: $remedy,
            };
        )*
        /// All of them, by status.
        pub static ALL: &[&Kind] = &[$(&$name),*];
    };
}

kinds! {
    MALFORMED "malformed" 400 "Malformed request" false
        "The request could not be read: its body is not JSON, its address is not percent-encoded UTF-8, or it breaks HTTP."
        "Correct the request; `detail` says where it could not be read on."
    IDEMPOTENCY_KEY_REQUIRED "idempotency-key-required" 400 "Idempotency key required" false
        "The request would not be safe to repeat: it has neither an id of the caller's choice nor a usable `Idempotency-Key`."
        "Send an `order_id` in the body or an `Idempotency-Key` header of 1 to 128 visible ASCII characters, and the same one with every repeat."
    LOCK_TOKEN_REQUIRED "lock-token-required" 400 "Lock token required" false
        "A lock is renewed and released by the token it was granted with, and the request has none, or one that cannot be a token."
        "Send the `token` of the grant in the header `Lock-Token`: 16 to 64 visible ASCII characters."
    UNAUTHENTICATED "unauthenticated" 401 "No valid token" false
        "The request has no `Authorization: Bearer` header, or its token is not one of the server's."
        "Send a token from the server's configuration; `tidegate token` makes a new one."
    FORBIDDEN "forbidden" 403 "Not allowed for this token" false
        "The token is valid, but its role does not cover this call."
        "Use a token of the role that `detail` names."
    RESERVED_QUEUE "reserved-queue" 403 "The product's own queue" false
        "`orders` and `tidegate.*` belong to the product itself: they can be read, not changed."
        "Use a queue of another name."
    FORBIDDEN_ORIGIN "forbidden-origin" 403 "Foreign origin" false
        "The request comes from a web page of another origin, or names a host that is not this server's. Web pages must not be able to drive a local server."
        "Call the server from a program, or under its own address."
    NOT_FOUND "not-found" 404 "No such address" false
        "The server has no such address."
        "Compare the path with `/openapi.json`."
    UNKNOWN_ORDER "unknown-order" 404 "Unknown order" false
        "There is no such order, or not one of this buyer. An id that was cancelled before any order had it stays unknown."
        "Correct the id; place the order first."
    UNKNOWN_SKU "unknown-sku" 404 "Unknown SKU" false
        "Nobody has created this SKU. Ids are compared byte for byte."
        "Correct the id, or create the SKU with `PUT /v1/skus/{sku}`."
    UNKNOWN_PAYMENT "unknown-payment" 404 "Unknown payment" false
        "No payment with this id was ever reported."
        "Correct the id, or report the payment with `POST /v1/orders/{id}/payments`."
    UNKNOWN_REFUND "unknown-refund" 404 "Unknown refund" false
        "There is no refund with this id."
        "Take the id from `GET /v1/refunds`."
    UNKNOWN_POST "unknown-post" 404 "Unknown post" false
        "There is no such post: nobody has published it, or it was deleted; or one to show again that not everybody sees."
        "Correct the id."
    UNKNOWN_NAMESPACE "unknown-namespace" 404 "Unknown namespace" false
        "The server's configuration has no namespace of this name."
        "Correct the name, or add `[cache.namespace.NAME]` to the configuration and restart the server."
    ABSENT "absent" 404 "There is none" false
        "The namespace's origin says that there is nothing under this key (404 or 410)."
        "Correct the key. If it exists by now, `DELETE` it from the cache or wait until `absent_for` has passed."
    UNKNOWN_QUEUE "unknown-queue" 404 "Unknown queue" false
        "No queue of this name ever had a task."
        "Correct the name; a queue begins with its first task."
    UNKNOWN_TASK "unknown-task" 404 "Unknown task" false
        "The queue has no task with this id; or none that is dead, where a dead one is asked for. A task that was acknowledged is gone."
        "Correct the id; `GET /v1/queues/{queue}/tasks` lists what is there, `GET /v1/queues/{queue}/dead` the dead."
    NO_REDIS "no-redis" 404 "No Redis is watched" false
        "This server watches no Redis: its store is embedded and `watch.redis` names none."
        "Name the servers in `[watch] redis` of the configuration and restart the server."
    METHOD_NOT_ALLOWED "method-not-allowed" 405 "Method not allowed" false
        "The address exists, but not with this method."
        "Use a method that the `Allow` header lists."
    TIMEOUT "timeout" 408 "Request timed out" true
        "The request did not arrive completely in time."
        "Send it again, faster; repeating it is safe."
    INSUFFICIENT_STOCK "insufficient-stock" 409 "Not enough stock" false
        "Fewer units of `sku` are available than the order asks for. Nothing was held."
        "Order at most `available` units, or wait until held units are released."
    LIMIT_REACHED "limit-reached" 409 "Limit reached" false
        "The order would exceed the limit of `sku` for one order or for one buyer: `limit` is the limit, `already` what counts against it. Or the user follows as many users as `feed.max_followees` allows."
        "Order at most `limit` less `already` units of it; or unfollow somebody first."
    NOT_ON_SALE "not-on-sale" 409 "Not on sale yet" false
        "The sale of `sku` begins later."
        "Order again when it is on sale (`on_sale_from` of the SKU)."
    ARCHIVED "archived" 409 "Archived" false
        "The SKU takes no new orders; orders that hold it live on."
        "Leave it out of the order, or revive it with `PUT /v1/skus/{sku}`."
    ALREADY_CANCELLED "already-cancelled" 409 "Cancelled before it was placed" false
        "This order id was cancelled before any order had it, and is out of use."
        "Place the order under another id, if it is still wanted."
    ILLEGAL_TRANSITION "illegal-transition" 409 "Not possible in this state" false
        "The order's state does not allow this. Nothing was changed."
        "Read the order; its `status` says what is possible."
    HOLD_CAP_EXCEEDED "hold-cap-exceeded" 409 "Held too long" false
        "The deadline would lie further from `placed_at` than the server's longest hold."
        "Ask for a shorter extension."
    PAYMENT_ID_REUSED "payment-id-reused" 409 "Payment id used before" false
        "The payment id is known, with another order, amount or currency. The first report stands."
        "Report this money under a payment id of its own."
    NOT_REFUNDABLE "not-refundable" 409 "Not refundable by hand" false
        "Only money that is unmatched or surplus can be made due back by hand."
        "Cancel the order to give its money back; refunds that exist are in `GET /v1/refunds`."
    ALREADY_SETTLED "already-settled" 409 "Settled before" false
        "The refund was reported as paid back before."
        "Nothing is left to do; do not pay it back again."
    STOCK_EXISTS "stock-exists" 409 "Stock exists" false
        "The SKU exists with another number of units; `on_hand` is taken only when a SKU is created."
        "Leave `on_hand` out, and count stock with `POST /v1/skus/{sku}/adjustments`."
    BELOW_COMMITTED "below-committed" 409 "Units are promised" false
        "The adjustment would leave fewer units than orders hold or have paid for."
        "Take at most `available` units away, or cancel orders first."
    TOO_MANY_QUEUES "too-many-queues" 409 "Too many queues" false
        "The task would begin one queue more than `queues.max` allows."
        "Use a queue that exists, or raise `queues.max` in the configuration of every server."
    LOCK_HELD "lock-held" 409 "Held by another" false
        "Another holds the lock, after the wait if one was asked for. `retry_after_ms` is what is left of its time, unless it renews."
        "Ask again later, or with a longer `wait_ms`: who waits is served first come, first served."
    LOCK_LOST "lock-lost" 409 "Lost" false
        "The lock is not held with this token: it ran out, was taken by another, or was released."
        "Stop what the lock protects, then take the lock again."
    SCAN_RUNNING "scan-running" 409 "A look is under way" false
        "This process looks at big keys already; it looks once at a time."
        "Read it with `GET /v1/redis/big-keys`, and begin another when it has ended."
    CURSOR_EXPIRED "cursor-expired" 410 "Cursor expired" false
        "The place where the page before ended is no longer within what a feed shows: seven days, or what feed.window says."
        "Begin without a cursor."
    STALE "stale" 412 "Changed in between" false
        "The SKU's version is not the one in `If-Match`. Nothing was changed."
        "Read the SKU again, decide again, and send its present `ETag`."
    TOO_LARGE "too-large" 413 "Body too large" false
        "The body is larger than this call takes: 1 MiB, or 8 MiB for `:batch`; or a task's payload is larger than 64 KiB."
        "Split the request; keep large payloads elsewhere and schedule a reference."
    UNSUPPORTED_MEDIA_TYPE "unsupported-media-type" 415 "Not JSON" false
        "A body must be JSON and say so."
        "Send `Content-Type: application/json`."
    URI_TOO_LONG "uri-too-long" 414 "Address too long" false
        "The request's address is longer than the server reads."
        "Shorten the query."
    INVALID "invalid" 422 "Invalid fields" false
        "The request was read, but fields of it are wrong. `errors` points at each."
        "Correct the fields that `errors` names and send the request again."
    IDEMPOTENCY_MISMATCH "idempotency-mismatch" 422 "Key used for another request" false
        "The id or idempotency key stands for another request."
        "Repeat a request unchanged; use a new key for a new one."
    CURRENCY_MISMATCH "currency-mismatch" 422 "Other currency" false
        "The payment is in another currency than the order."
        "Report it in the order's currency, or give the money back."
    HEADERS_TOO_LARGE "headers-too-large" 431 "Headers too large" false
        "The request's line and headers are larger than the server reads."
        "Send fewer or shorter headers."
    LEDGER_BROKEN "ledger-broken" 500 "The ledger contradicts itself" false
        "Rows of the ledger contradict each other, so this one request could not be decided. Nothing was changed."
        "An operator must look: run `tidegate reconcile` and read the server's log."
    INTERNAL "internal" 500 "A fault of the server" false
        "The server met a fault of its own while answering. Whether something was changed is unknown; repeating the request is safe."
        "Report it with the server's log; a repeat with the same id or key changes nothing twice."
    ORIGIN_FAILED "origin-failed" 502 "The origin failed" true
        "The namespace's origin gave no usable answer and no older value may be served; `detail` says why."
        "Look at the origin; it is asked again for this key once `Retry-After` seconds are over. What `detail` says of its answer \
         (too large, a redirect, a status) is mended at the origin or in the configuration, not by asking."
    ORIGIN_TIMEOUT "origin-timeout" 504 "The origin is too slow" true
        "The namespace's origin gave no whole answer within `load_timeout` and no older value may be served."
        "Look at the origin; ask again after `Retry-After` seconds. Until then the origin is not asked for this key."
    OVERLOADED "overloaded" 503 "Overloaded" true
        "More requests wait than the server takes. Nothing was changed."
        "Send the request again after `Retry-After` seconds."
    LEDGER_UNAVAILABLE "ledger-unavailable" 503 "Ledger unavailable" true
        "The ledger cannot be reached or cannot write. Nothing was acknowledged."
        "Send the request again after `Retry-After` seconds; repeating it is safe."
    STORE_UNAVAILABLE "store-unavailable" 503 "Store unavailable" true
        "The store of queues, locks or shared caches did not answer or did not do it, or this server has none. A change may have been made."
        "Send the request again after `Retry-After` seconds; repeating it is safe."
    STOPPING "stopping" 503 "Stopping" true
        "The server is stopping and takes no new requests."
        "Send the request again after `Retry-After` seconds, or to another node."
    NOT_READY "not-ready" 503 "Not ready" true
        "Orders can not be placed or paid now; `reasons` says why."
        "Wait and ask again."
}

/// The kind with this code.
#[must_use]
pub fn find(code: &str) -> Option<&'static Kind> {
    ALL.iter().copied().find(|kind| kind.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_well_formed() {
        for (i, kind) in ALL.iter().enumerate() {
            assert!(kind.code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", kind.code);
            assert!(ALL[..i].iter().all(|other| other.code != kind.code), "{} twice", kind.code);
            assert_eq!(kind.retryable, matches!(kind.status, 408 | 502..=504), "{}", kind.code);
        }
    }
}
