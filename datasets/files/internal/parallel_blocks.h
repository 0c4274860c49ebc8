#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep {

/// Shares work on many items out to threads, which are started when they are first needed and kept, since
/// decoding a batch of small images takes no longer than starting threads. Thread-safe.
class ParallelBlocks {
 public:
  using Work = std::function<void(size_t begin, size_t end)>;

  /// `num_threads` counts the caller of for_each(); 0 means one per core.
  explicit ParallelBlocks(int64_t num_threads);
  /// No call of for_each() may be running.
  ~ParallelBlocks();
  ParallelBlocks(const ParallelBlocks&) = delete;
  ParallelBlocks& operator=(const ParallelBlocks&) = delete;

  /// Splits 0 ... count - 1 into blocks of `block_size` and calls `work(begin, end)` for each, from the
  /// calling thread and, if there are several blocks, from this object's threads, which calls at the same
  /// time share. Blocks until all are done. After an exception no further block starts. If several blocks
  /// throw, rethrows the exception of the first of them in index order. All blocks before it have been run,
  /// so the reported error does not depend on timing unless the errors themselves do.
  void for_each(size_t count, size_t block_size, const Work& work);

 private:
  struct Job;

  void share(Job& job, size_t num_helpers);
  void withdraw(Job& job);
  void help();

  const size_t num_threads_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable shared_;
  std::condition_variable left_;
  bool is_stopping_ = false;
  std::vector<Job*> jobs_;  // that may have blocks to start
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep
