//! How far a schedule is.

use tokio::sync::watch;

/// What a schedule is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Stage {
    Wrong,
    Calm,
    Over,
}

/// Waits until all is over, and has what goes wrong `calm` down when it is to.
pub(crate) async fn until_over(stage: &mut watch::Receiver<Stage>, calm: impl Fn()) {
    let _ = stage.wait_for(|stage| *stage >= Stage::Calm).await;
    calm();
    let _ = stage.wait_for(|stage| *stage == Stage::Over).await;
}
