#include "lockstep/datasets/images/internal/for_each_image.h"

#include <ATen/native/TensorIterator.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>

namespace lockstep {

void for_each_image(int64_t count, int64_t values, int64_t values_of_thread,
                    c10::function_ref<void(int64_t)> work) {
  if (count <= 0) return;
  // Of LibTorch's loops that are compiled with OpenMP, only those over tensors can be called: this one is
  // over a tensor with a place for each image.
  const at::Tensor places = at::empty({count}, at::kByte);
  const auto* first_place = static_cast<const char*>(places.const_data_ptr());
  auto loop = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .add_borrowed_output(places)
                  .build();
  // ThreadSanitizer does not see how OpenMP's threads, which are not compiled with it, wait for each other:
  // `done` tells it.
  std::atomic<int64_t> done = 0;
  done.store(0, std::memory_order_release);
  loop.for_each(
      [&](char** place, const int64_t* /*strides*/, int64_t images, int64_t /*num_rows*/)
          __attribute__((no_sanitize("thread"))) {
            done.load(std::memory_order_acquire);
            const int64_t first = *place - first_place;
            for (int64_t i = first; i < first + images; ++i) work(i);
            done.fetch_add(1, std::memory_order_release);
          },
      std::max<int64_t>(values_of_thread / std::max<int64_t>(values, 1), 1));
  done.load(std::memory_order_acquire);
}

}  // namespace lockstep
