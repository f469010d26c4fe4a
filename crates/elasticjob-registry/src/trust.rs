//! Files that decide what a process executes, such as a registry in a file. A user who can write or replace such a file controls the
//! process, so files and folders that other users control are refused.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::{Gid, Group, Uid, User, geteuid};

const WRITE_GROUP: u32 = 0o020;
const WRITE_OTHERS: u32 = 0o002;
const STICKY: u32 = 0o1000;
const LINK: &str = "it is a symbolic link; name the file to which it points";

/// Opens a file that must not be a symbolic link.
///
/// # Errors
///
/// As of `options`; a symbolic link.
pub fn open_itself(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(path).map_err(|error| {
        let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
        if is_link { io::Error::other(LINK) } else { error }
    })
}

/// Checks the folder of a file: no user but this one and root can create or replace files of this user in it.
///
/// # Errors
///
/// Who can, and the command that changes it.
pub fn check_folder(path: &Path) -> Result<(), String> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(found) = folder.metadata() else { return Ok(()) }; // opening the file reports the error
    let name = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    check_owner(&found, &format!("its folder {}", name.display()))?;
    // In a folder such as /tmp, other users cannot replace the file.
    if found.mode() & STICKY != 0 {
        return Ok(());
    }
    check_mode(&found, &name, &format!("its folder {}, and so replace the file", name.display()))
}

/// Checks an open file: no user but this one and root can change it.
///
/// # Errors
///
/// Who can, and the command that changes it.
pub fn check_file(file: &File, path: &Path) -> Result<(), String> {
    let Ok(found) = file.metadata() else { return Ok(()) };
    check_owner(&found, "it")?;
    check_mode(&found, path, "it")
}

/// Checks a file that is not opened here, and its folder. A file that does not exist is trusted.
///
/// # Errors
///
/// As of [`check_folder`] and [`check_file`]; a symbolic link.
pub fn check_path(path: &Path) -> Result<(), String> {
    check_folder(path)?;
    let Ok(found) = path.symlink_metadata() else { return Ok(()) };
    if found.is_symlink() {
        return Err(LINK.to_owned());
    }
    check_owner(&found, "it")?;
    check_mode(&found, path, "it")
}

/// Returns `true` for the user of this process and for root.
pub fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

/// Returns the name of a user, or its number.
pub fn user_name(uid: u32) -> String {
    let found = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    found.map_or_else(|| format!("number {uid}"), |user| format!("`{}`", user.name))
}

fn check_owner(found: &Metadata, what: &str) -> Result<(), String> {
    if is_trusted(found.uid()) {
        return Ok(());
    }
    let (owner, me) = (user_name(found.uid()), user_name(geteuid().as_raw()));
    Err(format!(
        "{what} belongs to user {owner}, who could decide what user {me} executes; run elasticjob as user {owner}, or use a file of your own"
    ))
}

fn check_mode(found: &Metadata, path: &Path, what: &str) -> Result<(), String> {
    let command = |who: &str| format!("run: chmod {who}-w {}", path.display());
    if found.mode() & WRITE_OTHERS != 0 {
        return Err(format!("every user can write {what}; {}", command("go")));
    }
    if found.mode() & WRITE_GROUP != 0 && !is_private(found.gid()) {
        let group = Group::from_gid(Gid::from_raw(found.gid())).ok().flatten();
        let group = group.map_or_else(|| format!("number {}", found.gid()), |group| format!("`{}`", group.name));
        return Err(format!("group {group} can write {what}; {}", command("g")));
    }
    Ok(())
}

/// Whether a group is that of this user alone, as many systems create it with the user: it has the user's name and no other members.
fn is_private(gid: u32) -> bool {
    let user = User::from_uid(geteuid()).ok().flatten();
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    user.zip(group).is_some_and(|(user, group)| {
        let others = group.mem.iter().any(|member| *member != user.name);
        user.gid.as_raw() == gid && group.name == user.name && !others
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn set(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    }

    #[test]
    fn files_and_folders_that_others_can_write_are_refused_with_the_command_that_changes_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let file = File::create(&path).expect("a file");
        for (mode, refused) in [
            (0o600, None),
            (0o644, None),
            (0o666, Some(format!("every user can write it; run: chmod go-w {}", path.display()))),
            (0o602, Some(format!("every user can write it; run: chmod go-w {}", path.display()))),
        ] {
            set(&path, mode);
            assert_eq!(check_file(&file, &path).err(), refused, "{mode:o}");
        }
        let shown = folder.path().display();
        let refused =
            format!("every user can write its folder {shown}, and so replace the file; run: chmod go-w {shown}");
        for (mode, refused) in [(0o700, None), (0o755, None), (0o777, Some(refused)), (0o1777, None)] {
            set(folder.path(), mode);
            assert_eq!(check_folder(&path).err(), refused, "{mode:o}");
        }
    }

    #[test]
    fn the_group_of_the_user_alone_may_write_and_others_may_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let file = File::create(&path).expect("a file");
        set(&path, 0o660);
        // Root and its group have the same name; a user of another system may have a shared group.
        let gid = file.metadata().expect("it is there").gid();
        assert_eq!(check_file(&file, &path).is_ok(), is_private(gid));
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, None, Some(12_345)).expect("root may");
            let refused = check_file(&file, &path).expect_err("refused");
            assert_eq!(refused, format!("group number 12345 can write it; run: chmod g-w {}", path.display()));
            std::os::unix::fs::chown(&path, Some(12_345), None).expect("root may");
            let refused = check_file(&file, &path).expect_err("refused");
            assert!(refused.starts_with("it belongs to user number 12345, who could decide"), "{refused}");
        }
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "x").expect("a file");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        assert!(open_itself(OpenOptions::new().read(true), &file).is_ok());
        let refused = open_itself(OpenOptions::new().read(true), &link).expect_err("a link");
        assert_eq!(refused.to_string(), LINK);
        assert_eq!(check_path(&link), Err(LINK.to_owned()));
        assert_eq!(check_path(&file), Ok(()));
        assert_eq!(check_path(&folder.path().join("none")), Ok(()));
    }
}
