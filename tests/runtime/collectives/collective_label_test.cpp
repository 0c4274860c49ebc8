#include "lockstep/runtime/collectives/collective_label.h"

#include <gtest/gtest.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/replica_group.h"

namespace lockstep {
namespace {

/// Each rank gathers and sums with its own label. Returns the ranks' errors, one after another.
std::string errors_with(const std::vector<std::string>& labels) {
  ReplicaGroup group(static_cast<int>(labels.size()));
  const auto errors = group.errors_of([&](int rank) {
    const auto& backend = group.backend(rank);
    at::Tensor whole = at::zeros({4});
    at::Tensor part = at::ones({2});
    {
      const CollectiveLabel label(backend.get(), labels[static_cast<size_t>(rank)]);
      backend->_allgather_base(whole, part)->wait();
      EXPECT_TRUE(whole.equal(at::ones({4})));
      backend->_reduce_scatter_base(part, whole, {})->wait();
      EXPECT_TRUE(part.equal(at::full({2}, 2.0)));
    }
    std::vector<at::Tensor> tensors{part};
    backend->allreduce(tensors)->wait();
    EXPECT_TRUE(part.equal(at::full({2}, 4.0)));
  });
  std::string text;
  for (const auto& error : errors) text += error ? message_of<std::exception>(error) + "\n" : "";
  return text;
}

TEST(CollectiveLabelTest, CollectivesOfOneLabelMatch) {
  EXPECT_EQ(errors_with({" of unit 'a'", " of unit 'a'"}), "");
}

TEST(CollectiveLabelTest, AMismatchShowsBothLabels) {
  const auto errors = errors_with({" of unit 'a'", " of unit 'b'"});
  EXPECT_NE(errors.find("all_gather Float[2] Float[2] of unit 'a'"), std::string::npos) << errors;
  EXPECT_NE(errors.find("all_gather Float[2] Float[2] of unit 'b'"), std::string::npos) << errors;
}

TEST(CollectiveLabelTest, NoBackendIsLabelled) {
  const CollectiveLabel label(nullptr, " of nothing");
}

}  // namespace
}  // namespace lockstep
