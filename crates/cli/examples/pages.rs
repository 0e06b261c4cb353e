//! Writes the shell completions and man pages into a folder: `cargo xtask dist` runs it.

use std::{fs, io, path::Path};

use clap_complete::Shell;

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: pages FOLDER"))?;
    let folder = Path::new(&folder);
    let (completions, man) = (folder.join("completions"), folder.join("man"));
    fs::create_dir_all(&completions)?;
    fs::create_dir_all(&man)?;
    for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut billhook::command(), "billhook", &completions)?;
    }
    clap_mangen::generate_to(billhook::command(), man)
}
