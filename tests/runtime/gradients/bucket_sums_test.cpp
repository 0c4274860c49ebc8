#include "lockstep/runtime/gradients/bucket_sums.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "lockstep/runtime/gradients/gradient_buckets.h"

namespace lockstep {
namespace {

/// Rank 0 of two. Its reduce-scatters end when the test says so; it remembers those that somebody still
/// holds.
class HeldScatters final : public c10d::Backend {
 public:
  HeldScatters() : Backend(/*rank=*/0, /*size=*/2) {}

  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions&) override {
    output.copy_(input.narrow(0, 0, output.numel()));
    auto work = c10::make_intrusive<Scatter>(*this);
    ++held;
    return work;
  }

  int held = 0;
  bool have_ended = false;

 private:
  struct Scatter final : c10d::Work {
    explicit Scatter(HeldScatters& of) : backend(of) {}
    ~Scatter() override { --backend.held; }
    bool isCompleted() override { return backend.have_ended; }
    bool wait(std::chrono::milliseconds) override { return true; }
    HeldScatters& backend;
  };
};

TEST(BucketSumsTest, PartsLetGoOfSumsThatHaveEndedWhileBackwardGoesOn) {
  for (const bool are_kept_apart : {false, true}) {
    constexpr int64_t kElements = 64;
    std::vector<at::Tensor> parameters;
    for (int i = 0; i < 3; ++i) parameters.push_back(at::full({kElements}, 1.0).requires_grad_(true));
    GradientBuckets buckets;
    const int64_t bytes = kElements * 4;
    buckets.lay_out(parameters, {0, 1, 2}, {.first_bucket_bytes = bytes, .bucket_bytes = bytes}, 1,
                    std::nullopt, BucketParts{.count = 2, .own = 0, .are_kept_apart = are_kept_apart});
    const auto backend = c10::make_intrusive<HeldScatters>();
    PartBucketSums sums(buckets, backend, nullptr);
    for (size_t bucket = 0; bucket < 3; ++bucket) {
      buckets.allocate(bucket);
      buckets.slot(bucket).fill_(static_cast<double>(bucket) + 2);
      sums.launch(bucket);
    }
    sums.advance();
    EXPECT_EQ(backend->held, 3) << are_kept_apart;
    backend->have_ended = true;
    sums.advance();
    EXPECT_EQ(backend->held, 0) << are_kept_apart;
    sums.wait();
    for (size_t bucket = 0; bucket < 3; ++bucket)
      EXPECT_EQ(buckets.own_part(bucket)[0].item<double>(), static_cast<double>(bucket) + 2);
  }
}

}  // namespace
}  // namespace lockstep
