//! The echo of Ctrl-C: a live view fills its last line, so that the `^C` that the terminal prints there would begin another
//! line, and the view could not erase itself any more.

use std::{
    io::stdin,
    sync::{Mutex, PoisonError},
};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// The settings of the terminal before the echo was turned off.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Keeps the terminal from printing `^C`, until [`restore`]. Does nothing if standard input is no terminal.
pub(crate) fn hide_interrupts() {
    let Ok(before) = tcgetattr(stdin()) else { return };
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHOCTL);
    if tcsetattr(stdin(), OptionalActions::Now, &hidden).is_ok() {
        BEFORE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(before);
    }
}

/// Restores the settings of the terminal; to be called before the process ends, too.
pub fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        tcsetattr(stdin(), OptionalActions::Now, &before).ok();
    }
}
