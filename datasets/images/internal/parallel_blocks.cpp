#include "lockstep/datasets/images/internal/parallel_blocks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

constexpr size_t kBlockSize = 64;

}  // namespace

void for_each_block(size_t count, int64_t num_threads,
                    const std::function<void(size_t begin, size_t end)>& work) {
  const size_t num_blocks = (count + kBlockSize - 1) / kBlockSize;
  const size_t wanted =
      num_threads > 0 ? static_cast<size_t>(num_threads) : std::max(1U, std::thread::hardware_concurrency());

  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;  // guards the two below
  size_t first_failed = std::numeric_limits<size_t>::max();
  std::exception_ptr error;

  const auto run = [&] {
    while (!stop) {
      const size_t block = next++;
      if (block >= num_blocks) return;
      try {
        work(block * kBlockSize, std::min(count, (block + 1) * kBlockSize));
      } catch (...) {
        stop = true;
        const std::lock_guard lock(mutex);
        if (block < first_failed) {
          first_failed = block;
          error = std::current_exception();
        }
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < std::min(wanted, num_blocks); ++i) threads.emplace_back(run);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace lockstep
