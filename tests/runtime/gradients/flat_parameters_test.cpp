#include "lockstep/runtime/gradients/flat_parameters.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/gradients/gradient_buckets.h"

namespace lockstep {
namespace {

/// Rank 0 of two, whose other rank has only zeros. Counts the gathers that nobody has waited for.
class CountingGathers final : public c10d::Backend {
 public:
  CountingGathers() : Backend(/*rank=*/0, /*size=*/2) {}

  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor&,
                                                 const c10d::AllgatherOptions&) override {
    const int64_t half = output.numel() / 2;
    output.narrow(0, half, half).zero_();
    ++gathers;
    most_at_a_time = std::max(most_at_a_time, ++under_way_);
    return c10::make_intrusive<Gather>(*this);
  }

  int gathers = 0;
  int most_at_a_time = 0;

 private:
  struct Gather final : c10d::Work {
    explicit Gather(CountingGathers& of) : backend(of) {}
    bool wait(std::chrono::milliseconds) override {
      --backend.under_way_;
      return true;
    }
    CountingGathers& backend;
  };

  int under_way_ = 0;
};

TEST(FlatParametersTest, GathersTwoBucketsAtATime) {
  constexpr int64_t kElements = 64;
  constexpr int kBuckets = 5;
  std::vector<at::Tensor> parameters;
  std::vector<size_t> order;
  for (int i = 0; i < kBuckets; ++i) {
    parameters.push_back(at::full({kElements}, i + 1.0).requires_grad_(true));
    order.push_back(static_cast<size_t>(i));
  }
  GradientBuckets buckets;
  const int64_t bytes = kElements * 4;
  buckets.lay_out(parameters, order, {.first_bucket_bytes = bytes, .bucket_bytes = bytes}, 1, std::nullopt,
                  BucketParts{.count = 2, .own = 0});
  FlatParameters flat(parameters, [](size_t i) { return std::to_string(i); });
  flat.adopt(buckets);
  ASSERT_EQ(flat.size(), static_cast<size_t>(kBuckets));
  CountingGathers backend;
  flat.gather(backend);
  EXPECT_EQ(backend.gathers, kBuckets);
  EXPECT_EQ(backend.most_at_a_time, 2);
  for (int i = 0; i < kBuckets; ++i) {
    const auto& parameter = parameters[static_cast<size_t>(i)];
    EXPECT_EQ(parameter[0].item<float>(), i + 1.0F);
    EXPECT_EQ(parameter[kElements - 1].item<float>(), 0);  // the other rank's
  }
}

}  // namespace
}  // namespace lockstep
