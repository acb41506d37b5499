//! Reads on a connection of a pool, for whoever has pools in `parts()`.

/// Tries of a read whose connection was lost: a server that came back has closed all of a pool.
pub(crate) const READ_TRIES: usize = 2;

/// Runs a read on a connection; it borrows what it needs from `$self`'s future.
macro_rules! read {
    ($self:ident, $session:ident => $call:expr) => {
        read!($self, reads, $session => $call)
    };
    ($self:ident, $pool:ident, $session:ident => $call:expr) => {
        Box::pin(async move {
            let parts = $self.parts()?;
            let mut tries = 1;
            loop {
                let mut lease = parts.$pool.get().await?;
                let $session: &mut $crate::session::Session = &mut lease;
                let read: $crate::fault::Result<_> = $call.await;
                match read {
                    Ok(found) => return Ok(found),
                    Err(fault) if fault.class == $crate::fault::Class::Lost && tries < $crate::reading::READ_TRIES => parts.$pool.forget_idle(),
                    Err(fault) => return Err(fault.into()),
                }
                tries += 1;
            }
        })
    };
}
