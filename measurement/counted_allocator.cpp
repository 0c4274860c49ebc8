#include "lockstep/measurement/counted_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <memory>
#include <utility>

namespace lockstep::measurement {
namespace {

std::atomic<int64_t> now{0};
std::atomic<int64_t> most{0};

void count(int64_t bytes) {
  const int64_t current = now += bytes;
  int64_t peak = most;
  while (peak < current && !most.compare_exchange_weak(peak, current)) continue;
}

/// Takes memory from LibTorch's own allocator.
class CountedAllocator final : public c10::Allocator {
 public:
  explicit CountedAllocator(c10::Allocator& inner) : inner_(inner) {}

  c10::DataPtr allocate(size_t bytes) override {
    auto block = std::make_unique<Block>(Block{inner_.allocate(bytes), static_cast<int64_t>(bytes)});
    count(block->bytes);
    void* data = block->memory.get();
    return {data, block.release(), &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  struct Block {
    c10::DataPtr memory;
    int64_t bytes = 0;
  };

  static void free_block(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    count(-block->bytes);
  }

  c10::Allocator& inner_;
};

}  // namespace

void count_cpu_tensors() {
  static CountedAllocator allocator(*c10::GetCPUAllocator());
  c10::SetAllocator(c10::DeviceType::CPU, &allocator, /*priority=*/1);
}

int64_t counted_bytes() {
  return now;
}

int64_t counted_peak() {
  return most;
}

void restart_counted_peak() {
  most = now.load();
}

}  // namespace lockstep::measurement
