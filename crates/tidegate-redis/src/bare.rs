//! What the benches of queues and locks compare with, and look at the server by: the client by itself; and how they leave
//! nothing behind on a server that is not their own.

use std::fmt;

use redis::Value;
use tidegate_backend::{Error, ErrorKind, Result};

use crate::connect::{Bare, Call, Connector, failed};
use crate::keys::Keys;
use crate::reply;

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BareAnswer {
    /// Nothing.
    Nil,
    /// A number.
    Number(i64),
    /// Bytes, and every kind of text.
    Bytes(Vec<u8>),
    /// Several.
    List(Vec<BareAnswer>),
}

impl BareAnswer {
    fn of(value: Value) -> Self {
        match value {
            Value::Nil => Self::Nil,
            Value::Int(number) => Self::Number(number),
            Value::BulkString(bytes) => Self::Bytes(bytes),
            Value::SimpleString(text) | Value::VerbatimString { text, .. } => Self::Bytes(text.into_bytes()),
            Value::Okay => Self::Bytes(b"OK".to_vec()),
            Value::Array(values) | Value::Set(values) => Self::List(values.into_iter().map(Self::of).collect()),
            Value::Double(number) => Self::Bytes(number.to_string().into_bytes()),
            other => Self::Bytes(format!("{other:?}").into_bytes()),
        }
    }

    /// As text; empty if it is none.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Number(number) => number.to_string(),
            Self::Nil | Self::List(_) => String::new(),
        }
    }

    /// What is in a list; nothing if it is none.
    #[must_use]
    pub fn list(self) -> Vec<BareAnswer> {
        match self {
            Self::List(answers) => answers,
            _ => Vec::new(),
        }
    }
}

/// The client by itself, on the connection that a [`Connector`] has now.
#[derive(Clone)]
pub struct BareClient(Bare);

impl fmt::Debug for BareClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BareClient").finish_non_exhaustive()
    }
}

fn command(parts: &[&[u8]]) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    for part in parts {
        command.arg(part);
    }
    command
}

impl BareClient {
    /// One command, as one writes it with the client.
    ///
    /// # Errors
    /// The client's, and the server's.
    pub async fn ask(&self, parts: &[&[u8]]) -> Result<BareAnswer> {
        self.0.ask::<Value>(&command(parts)).await.map(BareAnswer::of).map_err(failed)
    }

    /// Several, sent together.
    ///
    /// # Errors
    /// As [`BareClient::ask`].
    pub async fn ask_all(&self, commands: &[Vec<&[u8]>]) -> Result<Vec<BareAnswer>> {
        let mut pipeline = redis::Pipeline::with_capacity(commands.len());
        for parts in commands {
            pipeline.add_command(command(parts));
        }
        let answers = self.0.ask_all(&pipeline).await.map_err(failed)?;
        Ok(answers.into_iter().map(BareAnswer::of).collect())
    }
}

impl Connector {
    /// The client by itself, on the present connection.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`]: there is none.
    pub fn bare_client(&self) -> Result<BareClient> {
        let none = || Error::new(ErrorKind::Unavailable, "there is no connection to Redis");
        self.bare().map(BareClient).ok_or_else(none)
    }

    /// Deletes everything in Redis under the name of these options: for names that were made up for one run.
    ///
    /// # Errors
    /// Redis does not do it.
    pub async fn erase(&self) -> Result<()> {
        let everything = Keys::new(&self.options().name).everything();
        let mut walk = self.walk(everything).await?;
        while let Some(keys) = walk.next().await? {
            let keys: Result<Vec<&[u8]>> = keys.iter().map(reply::bytes).collect();
            let calls = keys?.into_iter().map(|key| Call::plain("UNLINK", key, &[])).collect();
            self.run(calls).await.into_iter().try_for_each(|answer| answer.map(|_| ()))?;
        }
        Ok(())
    }
}
