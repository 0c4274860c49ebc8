#include "lockstep/strategies/communication/communication_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/gradients/bucket_layout.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

TEST(CommunicationOptions, TakesOfAnOverrideOnlyWhatIsNotItsDefault) {
  const CommunicationOptions own{.bytes_per_pack = 100, .timeout = seconds(5)};
  EXPECT_EQ(own.merge({}), own);
  const CommunicationOptions merged =
      own.merge({.bytes_per_pack = 7, .implementation = CommunicationImplementation::kRing});
  EXPECT_EQ(merged, (CommunicationOptions{7, seconds(5), CommunicationImplementation::kRing}));
  EXPECT_EQ(CommunicationOptions().merge(own), own);
  EXPECT_EQ(own.merge({.exchange_algorithm = "ring"}).exchange_algorithm, "ring");
  EXPECT_TRUE(own.merge({}).encrypt);
  EXPECT_FALSE(own.merge({.encrypt = false}).encrypt);
}

/// Returns the packs of gradients of these sizes, the first of which arrives first.
std::vector<std::vector<size_t>> packs_of(const std::vector<int64_t>& bytes, int64_t bytes_per_pack) {
  std::vector<BucketItem> items;
  std::vector<size_t> order;
  for (const int64_t size : bytes) {
    order.push_back(items.size());
    items.push_back({size, "float"});
  }
  return assign_buckets(items, order, CommunicationOptions{.bytes_per_pack = bytes_per_pack}.packed({}));
}

// The values are those of group_by_size() in TensorFlow's cross_device_utils.
TEST(CommunicationOptions, PacksAsTensorFlowDoes) {
  using Packs = std::vector<std::vector<size_t>>;
  EXPECT_EQ(packs_of({4, 4, 8, 16, 4}, 8), (Packs{{0, 1, 2}, {3}, {4}}));
  EXPECT_EQ(packs_of({4, 4, 8, 16, 4}, 1), (Packs{{0}, {1}, {2}, {3}, {4}}));
  EXPECT_EQ(packs_of({4, 4, 8, 16, 4}, 15), (Packs{{0, 1, 2}, {3}, {4}}));
  EXPECT_EQ(packs_of({4, 4, 8, 16, 4}, 16), (Packs{{0, 1, 2, 3}, {4}}));
  EXPECT_EQ(packs_of({4, 4, 8, 16, 4}, 1000), (Packs{{0, 1, 2, 3, 4}}));
}

TEST(CommunicationOptions, LeaveTheFirstBucketSmallIfPacksAreLarger) {
  const BucketOptions buckets{.first_bucket_bytes = 10, .bucket_bytes = 100};
  EXPECT_EQ(CommunicationOptions{}.packed(buckets).bucket_bytes, 100);
  EXPECT_EQ(CommunicationOptions{}.packed({}).bucket_bytes, 0) << "is left to the strategy";
  const auto packed = CommunicationOptions{.bytes_per_pack = 50}.packed(buckets);
  EXPECT_EQ(packed.first_bucket_bytes, 10);
  EXPECT_EQ(packed.bucket_bytes, 51);
}

TEST(CommunicationOptions, RefusesNegativeBytesAndTimeoutsThatAreNotPositive) {
  EXPECT_THAT(message_of<InvalidArgument>([] { CommunicationOptions{.bytes_per_pack = -1}.check(); }),
              HasSubstr("but got -1"));
  EXPECT_THAT(message_of<InvalidArgument>([] { CommunicationOptions{.timeout = seconds(0)}.check(); }),
              HasSubstr("but got 0 ms"));
  CommunicationOptions{.bytes_per_pack = 1, .timeout = seconds(1)}.check();
}

TEST(CommunicationOptions, RefusesExchangeAlgorithmsThatCannotSum) {
  EXPECT_THAT(
      message_of<InvalidArgument>([] { CommunicationOptions{.exchange_algorithm = "tree"}.check(); }),
      HasSubstr("expected an exchange algorithm out of auto, recursive_doubling, halving, direct, ring, "
                "but got 'tree'"));
  EXPECT_THAT(
      message_of<InvalidArgument>([] {
        CommunicationOptions{.implementation = CommunicationImplementation::kRing,
                             .exchange_algorithm = "halving"}
            .check();
      }),
      HasSubstr("expected the communication auto or exchange with the halving exchange algorithm, but "
                "got ring"));
  for (const char* name : {"auto", "recursive_doubling", "halving", "direct", "ring"})
    CommunicationOptions{.exchange_algorithm = name}.check();
}

TEST(CommunicationOptions, HasNamesForImplementations) {
  for (const char* name : {"auto", "ring", "exchange", "nccl"})
    EXPECT_EQ(communication_name(parse_communication(name)), name);
  EXPECT_THAT(message_of<InvalidArgument>([] { parse_communication("gloo"); }),
              HasSubstr("expected auto, ring, exchange or nccl, but got 'gloo'"));
}

}  // namespace
}  // namespace lockstep
