#include "lockstep/tests/gpu/fake_gpu_memory.h"

#include <ATen/ops/from_blob.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <iomanip>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>

#include "lockstep/tests/gpu/driver_calls.h"
#include "lockstep/tests/gpu/fake_gpu.h"
#include "lockstep/tests/gpu/fake_gpu_capture.h"
#include "lockstep/tests/gpu/fake_gpu_state.h"

namespace lockstep::fake_gpu {
namespace {

struct Pinned {
  size_t bytes;
  std::shared_ptr<const void> lifetime;
};

struct Memory {
  std::mutex mutex;
  std::map<const char*, std::weak_ptr<Block>> blocks;
  std::map<const char*, Pinned> pinned;
  std::array<int64_t, kNumDevices> used{};
  std::array<int64_t, kNumDevices> limit = [] {
    std::array<int64_t, kNumDevices> none;
    none.fill(-1);
    return none;
  }();
  /// Sizes of the freed blocks that LibTorch's allocator would keep for each stream.
  std::map<StreamName, std::multiset<size_t>> cached;
};

Memory& memory() {
  static auto* const memory = new Memory;  // tensors with static lifetime free memory after main
  return *memory;
}

/// Formats a size as CUDA's allocator does.
std::string size_text(int64_t bytes) {
  const bool is_large = bytes > int64_t{1} << 30;
  const double value = static_cast<double>(bytes) / static_cast<double>(int64_t{1} << (is_large ? 30 : 20));
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << value << (is_large ? " GiB" : " MiB");
  return text.str();
}

void take(int device, size_t bytes) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  auto& used = memory().used.at(static_cast<size_t>(device));
  const int64_t limit = memory().limit.at(static_cast<size_t>(device));
  if (limit >= 0 && used + static_cast<int64_t>(bytes) > limit) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ",
                     size_text(static_cast<int64_t>(bytes)), ". GPU ", device, " has a total capacity of ",
                     size_text(limit), " of which ", size_text(limit - used), " is free. ");
  }
  used += static_cast<int64_t>(bytes);
}

/// The allocator rounds sizes up, and serves a stream from that stream's own freed blocks if it can.
size_t rounded(size_t bytes) {
  constexpr size_t kUnit = 512;
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

bool take_from_cache(StreamName stream, size_t bytes) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  auto& sizes = memory().cached[stream];
  const auto found = sizes.lower_bound(rounded(bytes));
  if (found == sizes.end()) return false;
  sizes.erase(found);
  return true;
}

uint64_t next_serial() {
  static std::atomic<uint64_t> next{0};
  return next++;
}

using BlockHandle = std::shared_ptr<Block>;

void release(void* context) {
  const std::unique_ptr<BlockHandle> handle(static_cast<BlockHandle*>(context));
  (*handle)->is_held = false;
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device = current_device();
    const StreamName stream = current_stream(device);
    const auto capture = own_capture(stream);
    const auto owner = capture ? BlockOwner::kGraph : BlockOwner::kStream;
    auto handle = std::make_unique<BlockHandle>(std::make_shared<Block>(stream, bytes, owner));
    Block& block = **handle;
    {
      const std::lock_guard<std::mutex> lock(memory().mutex);
      memory().blocks[block.data] = *handle;
    }
    if (capture) {
      fill_with_garbage(block);
      capture->own(*handle);
    }
    return {block.data, handle.release(), &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }
};

void free_pinned_memory(void* data) {
  {
    const std::lock_guard<std::mutex> lock(memory().mutex);
    memory().pinned.erase(static_cast<const char*>(data));
  }
  std::free(data);
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = std::malloc(bytes == 0 ? 1 : bytes);
    const std::lock_guard<std::mutex> lock(memory().mutex);
    memory().pinned[static_cast<const char*>(data)] = {bytes, std::make_shared<char>()};
    return {data, data, &free_pinned_memory, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned_memory; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }
};

}  // namespace

Block::Block(StreamName stream, size_t size, BlockOwner whose)
    : bytes(size), device(stream.device), owner(whose), serial(next_serial()), stream_(stream) {
  take(device, bytes);
  if (owner == BlockOwner::kStream && !take_from_cache(stream, bytes)) {
    count_call(&DriverCalls::allocations);
    note_blocking_call("memory was allocated");
  }
  // Not zeroed, as on a GPU; at least one byte, so that every block has its own address.
  data = static_cast<char*>(std::malloc(bytes == 0 ? 1 : bytes));
  if (owner == BlockOwner::kGraph) {
    order().reserve(stream, {data, bytes});
  } else {
    order().allocate(stream, {data, bytes});
  }
}

Block::~Block() {
  if (owner == BlockOwner::kGraph) {
    order().unreserve(data);
  } else {
    order().free(data);
  }
  {
    const std::lock_guard<std::mutex> lock(memory().mutex);
    memory().blocks.erase(data);
    memory().used.at(static_cast<size_t>(device)) -= static_cast<int64_t>(bytes);
    if (owner == BlockOwner::kStream) memory().cached[stream_].insert(rounded(bytes));
  }
  std::free(data);
}

void fill_with_garbage(Block& block) {
  std::memset(block.data, 0xff, block.bytes);
}

c10::Allocator& device_allocator() {
  static DeviceAllocator allocator;
  return allocator;
}

c10::Allocator& pinned_allocator() {
  static PinnedAllocator allocator;
  return allocator;
}

std::shared_ptr<Block> block_at(const void* address) {
  const auto* const byte = static_cast<const char*>(address);
  std::shared_ptr<Block> block;  // may be the last reference, whose end takes the lock
  const std::lock_guard<std::mutex> lock(memory().mutex);
  const auto next = memory().blocks.upper_bound(byte);
  if (next == memory().blocks.begin()) return nullptr;
  block = std::prev(next)->second.lock();
  return block && byte < block->data + block->bytes ? block : nullptr;
}

std::shared_ptr<const void> pinned_memory_at(const void* address) {
  const auto* const byte = static_cast<const char*>(address);
  const std::lock_guard<std::mutex> lock(memory().mutex);
  const auto next = memory().pinned.upper_bound(byte);
  if (next == memory().pinned.begin()) return nullptr;
  const auto& [begin, pinned] = *std::prev(next);
  return byte < begin + pinned.bytes ? pinned.lifetime : nullptr;
}

StreamOrder::Range range_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda() || tensor.numel() == 0) return {};
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return {static_cast<const char*>(tensor.const_data_ptr()),
          static_cast<size_t>(last + 1) * tensor.element_size()};
}

at::Tensor host_view(const at::Tensor& tensor, void* data) {
  return at::from_blob(tensor.numel() == 0 ? nullptr : data, tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

at::Tensor host_view(const at::Tensor& tensor) {
  return host_view(tensor, const_cast<void*>(tensor.const_data_ptr()));
}

void limit_memory(int device, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  memory().limit.at(static_cast<size_t>(device)) = bytes;
}

}  // namespace lockstep::fake_gpu
