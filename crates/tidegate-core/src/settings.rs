//! What a server may set about the rules.

/// What happens to money that arrives after the clock cancelled its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LatePayment {
    /// The order comes back to life if the payment covers it and its stock can be taken again.
    #[default]
    Revive,
    /// The money is due back.
    Refund,
}

/// The settings the rules read. Changing one never touches an order that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Hold time in seconds of an order that names none and whose SKUs set none; `1..=max_hold_seconds`.
    pub hold_seconds: i64,
    /// Longest hold in seconds, from `placed_at`, extensions included.
    pub max_hold_seconds: i64,
    /// Seconds between the `pay_by` the buyer is shown and the `release_at` the clock acts at.
    pub grace_seconds: i64,
    /// What late money does.
    pub late_payment: LatePayment,
    /// How long a tombstone (an id cancelled before it was placed) is kept, in seconds.
    pub tombstone_seconds: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hold_seconds: 1_800,
            max_hold_seconds: 86_400,
            grace_seconds: 0,
            late_payment: LatePayment::Revive,
            tombstone_seconds: 7 * 86_400,
        }
    }
}
