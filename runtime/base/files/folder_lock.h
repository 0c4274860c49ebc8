#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace lockstep {

/// Identifies a process that writes into a folder.
struct FolderOwner {
  std::string host;
  int64_t process = 0;
  /// Name that all processes of its job share, also after restarts. Empty: none.
  std::string job;
  int64_t generation = 0;  ///< How often its job had been started before.

  /// Describes this process.
  static FolderOwner here(const std::string& job = "", int64_t generation = 0);
  /// Returns text such as "process 4711 on host-a".
  std::string describe() const;
};

/// Another process owns the folder. The message names it.
///
/// Example:
///
///     try {
///       FolderLock lock("checkpoints/lock", FolderOwner::here());
///     } catch (const lockstep::FolderInUse& error) {
///       std::cerr << error.what() << " already writes here\n";
///     }
class FolderInUse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Owns a folder for this process: the system locks a file in the folder as long as the object lives.
///
/// Example:
///
///     FolderLock lock("checkpoints/lock", FolderOwner::here("mnist", 2));
///     if (!lock.holds()) throw std::runtime_error("a restarted job has taken the folder");
///
/// If a process is killed, its lock ends. A live process keeps its folder. If the file system has no locks,
/// an owner on another host keeps it too, since nobody can tell whether it lives. There is one exception: a
/// job that is started again, with a later generation, takes the folder from its earlier generation, which
/// had failed. If that one still runs, its holds() returns false from then on.
///
/// Only its owner can read the lock file, whatever the umask: other users could lock it, too, and so keep a
/// job from resuming.
///
/// Not thread-safe, except for holds().
class FolderLock {
 public:
  /// Locks the file `path`. Throws FolderInUse, and std::system_error naming the file if the system refuses.
  FolderLock(std::string path, const FolderOwner& owner);
  /// Releases the folder and removes the file if it still belongs to this object.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Returns false once a later generation has taken the folder. Thread-safe.
  bool holds() const;

 private:
  bool try_take(const FolderOwner& owner);
  void take_over(const FolderOwner& owner);

  std::string path_;
  int descriptor_ = -1;
};

/// Returns FolderOwner::describe() of the process that holds the lock file `path`. Returns an empty string if
/// nobody does, if the owner was killed, and if the file system has no locks. If the file is another user's,
/// returns "a process of another user", since nobody else can tell whether it still runs. Changes nothing.
std::string folder_owner(const std::string& path);

}  // namespace lockstep
