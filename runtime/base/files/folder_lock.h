#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace lockstep {

/// A process that writes into a folder.
struct FolderOwner {
  std::string host;
  int64_t process = 0;
  /// What all processes of its job have in common, over restarts too; empty: it has none.
  std::string job;
  int64_t generation = 0;  ///< how often its job had been started before

  /// This process.
  static FolderOwner here(const std::string& job = "", int64_t generation = 0);
  /// Such as "process 4711 on host-a".
  std::string describe() const;
};

/// Another process owns the folder. The message names it.
class FolderInUse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Owns a folder for this process, by a file in it that is locked with the system as long as the object
/// lives.
///
/// What a process left that was killed is no lock. One that is alive, or cannot be asked because the file
/// system has no locks and it ran on another host, keeps its folder, but for one of the same job and an
/// earlier generation: that was started again because it had failed, and comes back late at most. It is
/// fenced off: holds() tells it.
///
/// Not thread-safe, but for holds().
class FolderLock {
 public:
  /// `path` is the file's. Throws FolderInUse, and std::system_error naming the file where the system
  /// refuses.
  FolderLock(std::string path, const FolderOwner& owner);
  /// Gives the folder up and removes the file, if it is still this one's.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Whether no later generation has taken the folder.
  bool holds() const;

 private:
  bool try_take(const FolderOwner& owner);
  void take_over(const FolderOwner& owner);

  std::string path_;
  int descriptor_ = -1;
};

/// Who owns a folder by the lock file `path`, as describe() says it; empty where nobody does, also where its
/// owner was killed. Changes nothing.
std::string folder_owner(const std::string& path);

}  // namespace lockstep
