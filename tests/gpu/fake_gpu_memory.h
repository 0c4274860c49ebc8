#pragma once

// Internal to the fake GPU: the memory of its devices, and the host's pinned memory.

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/tests/gpu/stream_order.h"

namespace lockstep::fake_gpu {

enum class BlockOwner { kStream, kGraph };

/// Memory of a device, taken from it while the object lives.
struct Block {
  /// Throws c10::OutOfMemoryError beyond the limit.
  Block(StreamName stream, size_t size, BlockOwner whose);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const size_t bytes;
  const int device;
  const BlockOwner owner;
  /// No two blocks' are the same, as their addresses may be one after the other.
  const uint64_t serial;
  char* data = nullptr;
  /// Whether a tensor is on it.
  std::atomic<bool> is_held{true};
  /// Content that a graph's memory would have at the end of the capture if the work were done, until the
  /// first replay.
  std::vector<char> before_replay;

 private:
  const StreamName stream_;
};

/// NaN of every floating type, and no index.
void fill_with_garbage(Block& block);

c10::Allocator& device_allocator();
c10::Allocator& pinned_allocator();

/// The device memory that `address` is in; null if it is not device memory or was freed.
std::shared_ptr<Block> block_at(const void* address);
/// Lives as long as the pinned memory that `address` is in; null if there is none.
std::shared_ptr<const void> pinned_memory_at(const void* address);

/// From the first to the last byte of an element; empty if `tensor` is not on a GPU.
StreamOrder::Range range_of(const at::Tensor& tensor);
/// A CPU tensor shaped as `tensor`, on the memory from `data` on. It does not keep that memory alive.
at::Tensor host_view(const at::Tensor& tensor, void* data);
/// The same on `tensor`'s own memory.
at::Tensor host_view(const at::Tensor& tensor);

}  // namespace lockstep::fake_gpu
