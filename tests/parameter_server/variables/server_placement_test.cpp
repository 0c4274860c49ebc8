#include "lockstep/parameter_server/variables/server_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

std::vector<int> place_all(ServerPlacement& placement, const std::vector<int64_t>& shards) {
  std::vector<int> servers;
  for (const int64_t bytes : shards) servers.push_back(placement.place(bytes));
  return servers;
}

TEST(ServerPlacement, RoundRobinTakesOneServerAfterAnother) {
  ServerPlacement placement(3, ServerPlacementPolicy::kRoundRobin);
  EXPECT_THAT(place_all(placement, {100, 1, 1, 50, 1}), ::testing::ElementsAre(0, 1, 2, 0, 1));
  EXPECT_EQ(placement.bytes_on(0), 150);
  EXPECT_EQ(placement.bytes_on(1), 2);
  EXPECT_EQ(placement.bytes_on(2), 1);
}

TEST(ServerPlacement, LeastLoadedTakesTheOneWithTheFewestBytes) {
  ServerPlacement placement(3, ServerPlacementPolicy::kLeastLoaded);
  EXPECT_THAT(place_all(placement, {100, 60, 50, 20, 1, 39}), ::testing::ElementsAre(0, 1, 2, 2, 1, 1));
  EXPECT_EQ(placement.bytes_on(0), 100);
  EXPECT_EQ(placement.bytes_on(1), 100);
  EXPECT_EQ(placement.bytes_on(2), 70);
}

TEST(ServerPlacement, RefusesNoServer) {
  EXPECT_THROW(ServerPlacement(0, ServerPlacementPolicy::kRoundRobin), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
