//! Two building blocks for teams whose order data live elsewhere: they use Redis and nothing else of Tidegate.

mod status;
mod stock;

pub use status::{OrderStatus, StatusChange, StatusOutcome};
pub use stock::{StockAnswer, StockCounter, StockOperation};
