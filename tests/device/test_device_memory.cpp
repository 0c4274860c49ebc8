#include "lockstep/tests/device/test_device_memory.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/alloc_cpu.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iomanip>
#include <map>
#include <mutex>
#include <sstream>
#include <string>

namespace lockstep::test_device {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

struct Block {
  size_t bytes = 0;
  int device = 0;
};

struct Memory {
  std::mutex mutex;
  std::map<const char*, Block> blocks;
  std::map<const char*, size_t> pinned;
  std::array<DeviceStats, kMaxDevices> stats;
  at::HostStats pinned_stats;
  std::array<int64_t, kMaxDevices> limits = [] {
    std::array<int64_t, kMaxDevices> none;
    none.fill(-1);
    return none;
  }();
};

Memory& memory() {
  static auto* const memory = new Memory;  // tensors with static lifetime free memory after main
  return *memory;
}

int64_t capacity_of(int device) {
  const int64_t limit = memory().limits.at(static_cast<size_t>(device));
  return limit >= 0 ? limit : static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

/// Formats a size as LibTorch's allocators do.
std::string size_text(int64_t bytes) {
  const bool is_large = bytes >= int64_t{1} << 30;
  const double value = static_cast<double>(bytes) / static_cast<double>(int64_t{1} << (is_large ? 30 : 20));
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << value << (is_large ? " GiB" : " MiB");
  return text.str();
}

/// Calls `change` for each figure, with 1 for counts and `bytes` for sums. Nothing is cached, so all agree.
template <typename Change>
void for_each_figure(DeviceStats& stats, size_t bytes, const Change& change) {
  for (auto* counts : {&stats.allocation, &stats.segment, &stats.active}) change((*counts)[kAll], 1);
  for (auto* sums :
       {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes})
    change((*sums)[kAll], bytes);
}

/// Throws if `device` has too little memory.
void take(int device, size_t bytes) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  auto& stats = memory().stats.at(static_cast<size_t>(device));
  const int64_t capacity = capacity_of(device);
  const int64_t free = capacity - stats.allocated_bytes[kAll].current;
  if (static_cast<int64_t>(bytes) > free) {
    ++stats.num_ooms;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "[test_device] ", kName,
                     " is out of memory. Tried to allocate ", size_text(static_cast<int64_t>(bytes)), ". ",
                     kName, ":", device, " has a total capacity of ", size_text(capacity), " of which ",
                     size_text(free), " is free. ");
  }
  ++stats.num_device_alloc;
  for_each_figure(stats, bytes, [](auto& figure, size_t amount) { figure.increase(amount); });
}

void give_back(int device, size_t bytes) {
  auto& stats = memory().stats.at(static_cast<size_t>(device));
  ++stats.num_device_free;
  for_each_figure(stats, bytes, [](auto& figure, size_t amount) { figure.decrease(amount); });
}

void free_device_memory(void* data) {
  if (data == nullptr) return;
  order().free(static_cast<const char*>(data));
  {
    const std::lock_guard<std::mutex> lock(memory().mutex);
    const auto block = memory().blocks.extract(static_cast<const char*>(data));
    give_back(block.mapped().device, block.mapped().bytes);
  }
  c10::free_cpu(data);
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device = existing(current_device());
    check_device(device.index());
    make_context(device.index());
    if (bytes == 0) return {nullptr, device};
    take(device.index(), bytes);
    // Aligned as the CPU's own memory, so that kernels give the same bits.
    auto* const data = static_cast<char*>(c10::alloc_cpu(bytes));
    {
      const std::lock_guard<std::mutex> lock(memory().mutex);
      memory().blocks[data] = {bytes, device.index()};
    }
    order().allocate(current_stream(device), {data, bytes});
    return {data, data, &free_device_memory, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_device_memory; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}  // there is no cache
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    order().use_on(static_cast<const char*>(data.get()), name_of(stream));
  }
  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const size_t index = existing_index(device);
    const std::lock_guard<std::mutex> lock(memory().mutex);
    return memory().stats.at(index);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    const size_t index = existing_index(device);
    const std::lock_guard<std::mutex> lock(memory().mutex);
    auto& stats = memory().stats.at(index);
    stats.num_ooms = stats.num_device_alloc = stats.num_device_free = 0;
    for_each_figure(stats, 0, [](auto& figure, size_t) { figure.reset_accumulated(); });
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    const size_t index = existing_index(device);
    const std::lock_guard<std::mutex> lock(memory().mutex);
    for_each_figure(memory().stats.at(index), 0, [](auto& figure, size_t) { figure.reset_peak(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const size_t index = existing_index(device);
    const std::lock_guard<std::mutex> lock(memory().mutex);
    const int64_t capacity = capacity_of(static_cast<int>(index));
    const int64_t used = memory().stats.at(index).allocated_bytes[kAll].current;
    return {static_cast<size_t>(std::max<int64_t>(0, capacity - used)), static_cast<size_t>(capacity)};
  }

 private:
  static size_t existing_index(c10::DeviceIndex device) {
    return static_cast<size_t>(existing({kType, device}).index());
  }
};

void free_pinned_memory(void* data) {
  if (data == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(memory().mutex);
    const auto block = memory().pinned.extract(static_cast<const char*>(data));
    auto& stats = memory().pinned_stats;
    for (auto* counts : {&stats.active_requests, &stats.allocations}) counts->decrease(1);
    for (auto* sums : {&stats.active_bytes, &stats.allocated_bytes}) sums->decrease(block.mapped());
    ++stats.num_host_free;
  }
  c10::free_cpu(data);
}

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    check_has_as_torch_tpu("pinned memory");
    if (bytes == 0) return {nullptr, cpu};
    auto* const data = static_cast<char*>(c10::alloc_cpu(bytes));
    const std::lock_guard<std::mutex> lock(memory().mutex);
    memory().pinned[data] = bytes;
    auto& stats = memory().pinned_stats;
    for (auto* counts : {&stats.active_requests, &stats.allocations}) counts->increase(1);
    for (auto* sums : {&stats.active_bytes, &stats.allocated_bytes}) sums->increase(bytes);
    ++stats.num_host_alloc;
    return {data, data, &free_pinned_memory, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned_memory; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

  // Operators work at once, so freed memory is in use by none.
  bool record_event(void* data, void*, c10::Stream) override { return is_pinned(data); }
  void empty_cache() override {}
  at::HostStats get_stats() override {
    const std::lock_guard<std::mutex> lock(memory().mutex);
    return memory().pinned_stats;
  }
  void reset_accumulated_stats() override {
    for_each_stat([](auto& stat) { stat.reset_accumulated(); });
  }
  void reset_peak_stats() override {
    for_each_stat([](auto& stat) { stat.reset_peak(); });
  }

 private:
  template <typename Function>
  void for_each_stat(const Function& function) {
    const std::lock_guard<std::mutex> lock(memory().mutex);
    auto& stats = memory().pinned_stats;
    for (auto* stat :
         {&stats.active_requests, &stats.active_bytes, &stats.allocations, &stats.allocated_bytes})
      function(*stat);
  }
};

const bool has_allocators = [] {
  c10::SetAllocator(kType, &device_allocator());
  at::setHostAllocator(kType, &pinned_allocator());
  return true;
}();

}  // namespace

c10::DeviceAllocator& device_allocator() {
  static auto* const allocator = new DeviceAllocator;
  return *allocator;
}

at::HostAllocator& pinned_allocator() {
  static auto* const allocator = new PinnedAllocator;
  return *allocator;
}

std::optional<c10::Device> device_of_memory(const void* address) {
  const auto* const byte = static_cast<const char*>(address);
  const std::lock_guard<std::mutex> lock(memory().mutex);
  const auto next = memory().blocks.upper_bound(byte);
  if (next == memory().blocks.begin()) return std::nullopt;
  const auto& [begin, block] = *std::prev(next);
  if (byte >= begin + block.bytes) return std::nullopt;
  return device(block.device);
}

bool is_pinned(const void* address) {
  const auto* const byte = static_cast<const char*>(address);
  const std::lock_guard<std::mutex> lock(memory().mutex);
  const auto next = memory().pinned.upper_bound(byte);
  return next != memory().pinned.begin() && byte < std::prev(next)->first + std::prev(next)->second;
}

void resize_storage(c10::StorageImpl& storage, size_t bytes) {
  const c10::DeviceGuard on_device(storage.device());
  c10::DataPtr data = device_allocator().allocate(bytes);
  if (const size_t kept = std::min(bytes, storage.nbytes()); kept > 0)
    std::memcpy(data.get(), storage.data(), kept);
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
}

void limit_memory(int device, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  memory().limits.at(static_cast<size_t>(device)) = bytes;
}

}  // namespace lockstep::test_device
