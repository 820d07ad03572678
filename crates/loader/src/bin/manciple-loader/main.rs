//! `manciple-loader`: unpacks the program at its end into the file that `MANCIPLE_AGENT` names, and becomes
//! it, with the arguments and variables that it was given. See the library `loader`.
//!
//! It exits with 2 if it cannot, and says why as the agent would: in the termination message.
#![cfg_attr(bare, no_std, no_main)]

mod entry;
mod report;
mod unpack;

#[cfg(not(bare))]
fn main() {
    entry::hosted();
}
