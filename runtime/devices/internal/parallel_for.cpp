#include "lockstep/runtime/devices/internal/parallel_for.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/native/TensorIterator.h>

#include <algorithm>
#include <atomic>

namespace lockstep {

void parallel_for(int64_t begin, int64_t end, int64_t grain_size,
                  c10::function_ref<void(int64_t, int64_t)> work) {
  if (begin >= end) return;
  const int64_t count = end - begin;
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  const int64_t pieces = std::min(threads, std::max<int64_t>(count / std::max<int64_t>(grain_size, 1), 1));
  if (pieces == 1) return work(begin, end);

  // The loop is over a tensor with a place for each piece: of LibTorch's loops that are compiled with OpenMP,
  // only those over tensors can be called. ThreadSanitizer does not see how the threads, which are not
  // compiled with it, wait for each other: it is told by `done`.
  const int64_t most = at::divup(count, pieces);
  const at::Tensor places = at::empty({pieces}, at::kByte);
  const auto* first_place = static_cast<const char*>(places.const_data_ptr());
  std::atomic<int64_t> done = 0;
  auto loop = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .add_borrowed_output(places)
                  .build();
  loop.for_each(
      [&](char** place, const int64_t* /*strides*/, int64_t num_pieces, int64_t /*num_rows*/)
          __attribute__((no_sanitize("thread"))) {
            done.load(std::memory_order_acquire);
            const int64_t first = begin + (*place - first_place) * most;
            const int64_t last = std::min(end, first + num_pieces * most);
            if (first < last) work(first, last);
            done.fetch_add(1, std::memory_order_release);
          },
      1);
  done.load(std::memory_order_acquire);
}

}  // namespace lockstep
