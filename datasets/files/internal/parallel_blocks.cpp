#include "lockstep/datasets/files/internal/parallel_blocks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>

namespace lockstep {

/// One call of for_each().
struct ParallelBlocks::Job {
  const size_t count;
  const size_t block_size;
  const Work& work;
  const size_t num_blocks = count / block_size + (count % block_size == 0 ? 0 : 1);
  std::atomic<size_t> next{0};
  std::atomic<bool> has_failed{false};
  size_t num_helpers = 0;  // that run it now; guarded by the mutex of ParallelBlocks
  std::mutex mutex;        // guards the two below
  size_t first_failed = std::numeric_limits<size_t>::max();
  std::exception_ptr error;

  /// Runs blocks until none is left to start.
  void run() {
    while (!has_failed) {
      const size_t block = next++;
      if (block >= num_blocks) return;
      try {
        work(block * block_size, std::min(count, (block + 1) * block_size));
      } catch (...) {
        has_failed = true;
        const std::lock_guard lock(mutex);
        if (block < first_failed) {
          first_failed = block;
          error = std::current_exception();
        }
      }
    }
  }
};

ParallelBlocks::ParallelBlocks(int64_t num_threads)
    : num_threads_(num_threads > 0 ? static_cast<size_t>(num_threads)
                                   : std::max(1U, std::thread::hardware_concurrency())) {}

ParallelBlocks::~ParallelBlocks() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  shared_.notify_all();
  threads_.clear();
}

void ParallelBlocks::for_each(size_t count, size_t block_size, const Work& work) {
  Job job{.count = count, .block_size = block_size, .work = work};
  const size_t num_threads = std::min(num_threads_, job.num_blocks);
  if (num_threads > 1) share(job, num_threads - 1);
  job.run();
  if (num_threads > 1) withdraw(job);
  if (job.error) std::rethrow_exception(job.error);
}

void ParallelBlocks::share(Job& job, size_t num_helpers) {
  const std::lock_guard lock(mutex_);
  while (threads_.size() < num_helpers) threads_.emplace_back([this] { help(); });
  jobs_.push_back(&job);
  for (size_t i = 0; i < num_helpers; ++i) shared_.notify_one();
}

void ParallelBlocks::withdraw(Job& job) {
  std::unique_lock lock(mutex_);
  std::erase(jobs_, &job);
  left_.wait(lock, [&] { return job.num_helpers == 0; });
}

void ParallelBlocks::help() {
  std::unique_lock lock(mutex_);
  while (true) {
    shared_.wait(lock, [this] { return is_stopping_ || !jobs_.empty(); });
    if (is_stopping_) return;
    Job& job = *jobs_.front();
    ++job.num_helpers;
    lock.unlock();
    job.run();
    lock.lock();
    std::erase(jobs_, &job);
    if (--job.num_helpers == 0) left_.notify_all();
  }
}

}  // namespace lockstep
