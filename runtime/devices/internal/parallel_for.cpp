#include "lockstep/runtime/devices/internal/parallel_for.h"

#include <ATen/Parallel.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>

namespace lockstep {
namespace {

/// Tells ThreadSanitizer that all pieces of a loop run before what comes after it. OpenMP's threads are not
/// compiled with it, so it does not see how they wait for each other.
struct EndOfPiece {
  std::atomic<int64_t>& done;
  ~EndOfPiece() { done.fetch_add(1, std::memory_order_release); }
};
struct EndOfLoop {
  std::atomic<int64_t>& done;
  ~EndOfLoop() { done.load(std::memory_order_acquire); }
};

}  // namespace

void parallel_for(int64_t begin, int64_t end, int64_t grain_size,
                  c10::function_ref<void(int64_t, int64_t)> work) {
  if (begin >= end) return;
  const int64_t count = end - begin;
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  const int64_t pieces = std::min(threads, std::max<int64_t>(count / std::max<int64_t>(grain_size, 1), 1));
  if (pieces == 1) return work(begin, end);
  const auto begin_of = [&](int64_t piece) {
    return begin + piece * (count / pieces) + std::min(piece, count % pieces);
  };

  // Of LibTorch's loops that are compiled with OpenMP, only those over tensors can be called: this one is
  // over a tensor with a place for each piece.
  const at::Tensor places = at::empty({pieces}, at::kByte);
  const auto* first_place = static_cast<const char*>(places.const_data_ptr());
  auto loop = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .add_borrowed_output(places)
                  .build();
  std::atomic<int64_t> done = 0;
  const EndOfLoop end_of_loop{done};
  done.store(0, std::memory_order_release);
  loop.for_each(
      [&](char** place, const int64_t* /*strides*/, int64_t num_pieces, int64_t /*num_rows*/)
          __attribute__((no_sanitize("thread"))) {
            done.load(std::memory_order_acquire);
            const EndOfPiece end_of_piece{done};
            const int64_t piece = *place - first_place;
            work(begin_of(piece), begin_of(piece + num_pieces));
          },
      1);
}

}  // namespace lockstep
