#include "lockstep/runtime/gradients/bucket_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/tests/support/replica_group.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// One order per replica, and their channel.
class BucketOrders {
 public:
  BucketOrders(int ranks, size_t num_parameters)
      : group_(ranks), orders_(static_cast<size_t>(ranks), BucketOrder(num_parameters)) {}

  BucketOrder& operator[](size_t rank) { return orders_[rank]; }
  /// Takes one list per replica; replicas without a list do not call.
  void agree(const std::vector<std::vector<size_t>>& arrivals) {
    group_.run([&](int rank) {
      const auto self = static_cast<size_t>(rank);
      if (self < arrivals.size()) orders_[self].agree(*group_.backend(rank), arrivals[self]);
    });
  }

 private:
  ReplicaGroup group_;
  std::vector<BucketOrder> orders_;
};

TEST(BucketOrder, IsTheReverseOfRegistrationFirst) {
  const BucketOrder order(4);
  EXPECT_THAT(order.current(), ElementsAre(3, 2, 1, 0));
  EXPECT_FALSE(order.has_next());
  EXPECT_THAT(BucketOrder(0).current(), IsEmpty());
}

TEST(BucketOrder, BecomesThatOfReplicaZerosArrivalsEverywhereOnceTaken) {
  BucketOrders orders(3, 4);
  orders.agree({{1, 3, 0, 2}, {2, 0, 1, 3}, {0}});
  for (size_t rank = 0; rank < 3; ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_THAT(orders[rank].current(), ElementsAre(3, 2, 1, 0));
    ASSERT_TRUE(orders[rank].has_next());
    orders[rank].take_next();
    EXPECT_THAT(orders[rank].current(), ElementsAre(1, 3, 0, 2));
    EXPECT_FALSE(orders[rank].has_next());
  }
}

TEST(BucketOrder, EndsWithTheParametersThatNeverArrivedOnReplicaZero) {
  BucketOrders orders(2, 5);
  orders.agree({{2, 4}, {0, 1, 2, 3, 4}});
  for (size_t rank = 0; rank < 2; ++rank) {
    SCOPED_TRACE(rank);
    ASSERT_TRUE(orders[rank].has_next());
    orders[rank].take_next();
    const auto& order = orders[rank].current();
    ASSERT_EQ(order.size(), 5U);
    EXPECT_THAT(std::vector<size_t>(order.begin(), order.begin() + 2), ElementsAre(2, 4));
    EXPECT_THAT(std::vector<size_t>(order.begin() + 2, order.end()), testing::UnorderedElementsAre(0, 1, 3));
    EXPECT_EQ(order, orders[0].current());
  }
}

TEST(BucketOrder, HasNoNextWhereItIsTheSame) {
  BucketOrders orders(2, 3);
  orders.agree({{2, 1, 0}, {0, 1, 2}});
  EXPECT_FALSE(orders[0].has_next());
  EXPECT_FALSE(orders[1].has_next());
  EXPECT_THAT(orders[1].current(), ElementsAre(2, 1, 0));
}

TEST(BucketOrder, IsAgreedOnOnceOnly) {
  BucketOrders orders(2, 3);
  orders.agree({{0, 1, 2}, {2, 1, 0}});
  // The second call does not communicate: replica 1 is not there to answer.
  orders.agree({{1, 2, 0}});
  for (size_t rank = 0; rank < 2; ++rank) {
    SCOPED_TRACE(rank);
    orders[rank].take_next();
    EXPECT_THAT(orders[rank].current(), ElementsAre(0, 1, 2));
  }
  orders.agree({{1, 2, 0}, {1, 2, 0}});
  EXPECT_FALSE(orders[0].has_next());
  EXPECT_FALSE(orders[1].has_next());
}

TEST(BucketOrder, IsFinalAfterAStepWithoutArrivals) {
  BucketOrders orders(2, 3);
  orders.agree({{}, {0, 1, 2}});
  orders.agree({{0, 1, 2}, {0, 1, 2}});
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_FALSE(orders[rank].has_next());
    EXPECT_THAT(orders[rank].current(), ElementsAre(2, 1, 0));
  }
}

TEST(BucketOrder, IsAgreedOnAnewAfterAReset) {
  BucketOrders orders(2, 3);
  orders.agree({{0, 1, 2}, {0, 1, 2}});
  orders[0].take_next();  // replica 1 failed before it got here
  for (size_t rank = 0; rank < 2; ++rank) orders[rank].reset();
  for (size_t rank = 0; rank < 2; ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_THAT(orders[rank].current(), ElementsAre(2, 1, 0));
    EXPECT_FALSE(orders[rank].has_next());
  }
  orders.agree({{1, 2, 0}, {2, 1, 0}});
  for (size_t rank = 0; rank < 2; ++rank) {
    SCOPED_TRACE(rank);
    ASSERT_TRUE(orders[rank].has_next());
    orders[rank].take_next();
    EXPECT_THAT(orders[rank].current(), ElementsAre(1, 2, 0));
  }
}

TEST(BucketOrder, GoesOnFromWhatWasAgreedOnBefore) {
  BucketOrders orders(2, 4);
  orders.agree({{1, 3, 0, 2}, {2, 0, 1, 3}});
  EXPECT_THAT(orders[1].agreed(), ElementsAre(1, 3, 0, 2));
  orders[1].take_next();
  EXPECT_THAT(orders[1].agreed(), ElementsAre(1, 3, 0, 2));

  BucketOrders later(2, 4);
  EXPECT_THAT(later[0].agreed(), IsEmpty());
  for (size_t rank = 0; rank < 2; ++rank) {
    later[rank].set_agreed({1, 3, 0, 2});
    EXPECT_THAT(later[rank].agreed(), ElementsAre(1, 3, 0, 2));
    ASSERT_TRUE(later[rank].has_next());
    later[rank].take_next();
    EXPECT_THAT(later[rank].current(), ElementsAre(1, 3, 0, 2));
  }
  later.agree({{0, 1, 2, 3}, {0, 1, 2, 3}});  // later arrivals change nothing
  EXPECT_FALSE(later[0].has_next());
  EXPECT_THAT(later[0].agreed(), ElementsAre(1, 3, 0, 2));
}

TEST(BucketOrder, HasNothingNextWhereWhatWasAgreedOnIsTheReverseOfRegistration) {
  BucketOrder order(3);
  order.set_agreed({2, 1, 0});
  EXPECT_FALSE(order.has_next());
  EXPECT_THAT(order.agreed(), ElementsAre(2, 1, 0));
}

}  // namespace
}  // namespace lockstep
