#include "lockstep/measurement/counted_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace lockstep::measurement {
namespace {

TensorAccount all;

// LibTorch asks the allocator for memory without saying for whom.
thread_local std::shared_ptr<TensorAccount> account_of_thread;

/// Takes memory from LibTorch's own allocator. Operators of oneDNN ask for memory that is freed by its
/// address alone, so sizes are kept apart.
class CountedAllocator final : public c10::Allocator {
 public:
  explicit CountedAllocator(c10::Allocator& inner) : inner_(inner) {}

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = inner_.allocate(bytes);
    void* data = memory.get();
    if (data == nullptr) return memory;
    TORCH_INTERNAL_ASSERT(memory.get_context() == data);
    {
      const std::lock_guard<std::mutex> lock(sizes_mutex());
      sizes()[data] = {static_cast<int64_t>(bytes), memory.get_deleter(), account_of_thread};
    }
    memory.release_context();
    all.add(static_cast<int64_t>(bytes));
    if (account_of_thread) account_of_thread->add(static_cast<int64_t>(bytes));
    return {data, data, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  struct Block {
    int64_t bytes = 0;
    c10::DeleterFnPtr deleter = nullptr;
    std::shared_ptr<TensorAccount> account{};
  };

  // Never destroyed: tensors are freed until the process has ended.
  static std::mutex& sizes_mutex() {
    static auto& mutex = *new std::mutex;
    return mutex;
  }
  static std::unordered_map<void*, Block>& sizes() {
    static auto& blocks = *new std::unordered_map<void*, Block>;
    return blocks;
  }

  static void free_block(void* data) {
    Block block;
    {
      const std::lock_guard<std::mutex> lock(sizes_mutex());
      const auto found = sizes().find(data);
      if (found == sizes().end()) return;
      block = std::move(found->second);
      sizes().erase(found);
    }
    block.deleter(data);
    all.add(-block.bytes);
    if (block.account) block.account->add(-block.bytes);
  }

  c10::Allocator& inner_;
};

}  // namespace

void count_cpu_tensors() {
  static CountedAllocator allocator(*c10::GetCPUAllocator());
  c10::SetAllocator(c10::DeviceType::CPU, &allocator, /*priority=*/1);
}

int64_t counted_bytes() {
  return all.bytes();
}

int64_t counted_peak() {
  return all.peak();
}

void restart_counted_peak() {
  all.restart_peak();
}

void TensorAccount::add(int64_t bytes) {
  const int64_t current = bytes_ += bytes;
  int64_t peak = peak_;
  while (peak < current && !peak_.compare_exchange_weak(peak, current)) continue;
}

void count_thread_in(std::shared_ptr<TensorAccount> account) {
  account_of_thread = std::move(account);
}

TensorAccountGuard::TensorAccountGuard(std::shared_ptr<TensorAccount> account)
    : before_(std::exchange(account_of_thread, std::move(account))) {}

TensorAccountGuard::~TensorAccountGuard() {
  account_of_thread = std::move(before_);
}

}  // namespace lockstep::measurement
