#include "lockstep/runtime/replicas/replica_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "lockstep/runtime/backends/local_backend.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/graphs/graph_recording.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/noted_graphs.h"

namespace lockstep {
namespace {

/// State that notes how runs end.
struct NotedEnds : EndsWithRun {
  std::string ends;
  void end_run() override { ends += "ended "; }
  void abandon_run() noexcept override { ends += "abandoned "; }
};

class ReplicaCollectivesTest : public testing::Test {
 protected:
  LocalChannel channel_{1, LocalAlgorithm::kOneDevice, std::chrono::minutes(1)};
  WaitClock waits_;
  ReplicaCollectives replica_{"test", 0, 1};
};

TEST_F(ReplicaCollectivesTest, SharedStateIsOneObjectThatEndsWithEachRun) {
  const auto state = replica_.shared<NotedEnds>();
  EXPECT_EQ(replica_.shared<NotedEnds>(), state);
  for (int i = 0; i < 2; ++i) {
    ReplicaCollectives::Run run(replica_, channel_.backend(0), waits_);
    run.finish();
  }
  EXPECT_EQ(state->ends, "ended ended ");
}

TEST_F(ReplicaCollectivesTest, SharedStateIsAbandonedIfTheRunsFunctionThrows) {
  const auto state = replica_.shared<NotedEnds>();
  const auto fail = [&] {
    ReplicaCollectives::Run run(replica_, channel_.backend(0), waits_);
    throw std::runtime_error("no more");
  };
  EXPECT_THROW(fail(), std::runtime_error);
  EXPECT_EQ(state->ends, "abandoned ");
  replica_.reset();  // as a strategy does after another replica has failed
  EXPECT_EQ(state->ends, "abandoned abandoned ");
}

TEST_F(ReplicaCollectivesTest, RefusesWhatAGraphCannotHoldWhileOneIsCaptured) {
  std::string notes;
  GraphRecording graphs(std::make_unique<NotedGraphs>(notes));
  GraphRecording* recording = nullptr;
  ReplicaCollectives::Run run(replica_, channel_.backend(0), waits_, {}, nullptr, &recording);
  EXPECT_NO_THROW(replica_.refuse_capture("Layer", "a message"));
  recording = &graphs;
  graphs.begin({});
  EXPECT_THAT(message_of<InvalidArgument>([&] { replica_.refuse_capture("Layer", "a message"); }),
              testing::HasSubstr("[Layer] a message cannot be part of a CudaGraph"));
  graphs.end();
  EXPECT_NO_THROW(replica_.refuse_capture("Layer", "a message"));
}

}  // namespace
}  // namespace lockstep
