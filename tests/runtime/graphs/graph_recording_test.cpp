#include "lockstep/runtime/graphs/graph_recording.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/noted_graphs.h"

namespace lockstep {
namespace {

TEST(GraphRecording, ComputesWhatItCapturesOnceTheCallEnds) {
  std::string notes;
  GraphRecording recording(std::make_unique<NotedGraphs>(notes));
  recording.begin({});
  EXPECT_TRUE(recording.is_capturing());
  notes += "call";
  recording.end();
  EXPECT_FALSE(recording.is_capturing());
  EXPECT_EQ(notes, "(0call0)0!");
  recording.replay();
  recording.replay();
  EXPECT_EQ(notes, "(0call0)0!0!0!");
}

TEST(GraphRecording, ActionsComeBetweenGraphsInTheCallAndInReplays) {
  std::string notes;
  GraphRecording recording(std::make_unique<NotedGraphs>(notes));
  recording.begin({});
  recording.interrupt([&] {
    EXPECT_FALSE(recording.is_capturing());
    notes += "A";
  });
  EXPECT_TRUE(recording.is_capturing());
  recording.after_launch([&] { notes += "n"; });
  EXPECT_EQ(notes, "(00)0!A(1");
  recording.interrupt([&] { notes += "B"; });
  recording.end();
  EXPECT_EQ(notes, "(00)0!A(11)1!nB(22)2!");
  notes.clear();
  recording.replay();
  EXPECT_EQ(notes, "0!A1!nB2!");
}

TEST(GraphRecording, PutsBackTheGradientsThatTheCallLeft) {
  std::string notes;
  GraphRecording recording(std::make_unique<NotedGraphs>(notes));
  const auto made = torch::zeros({1}).requires_grad_();
  const auto dropped = torch::zeros({1}).requires_grad_();
  dropped.mutable_grad() = torch::ones({1});
  recording.begin({made, dropped});
  const auto gradient = torch::full({1}, 3);
  made.mutable_grad() = gradient.to(torch::kFloat);
  const auto captured = made.grad();
  dropped.mutable_grad().reset();
  recording.end();
  made.mutable_grad() = torch::zeros({1});
  dropped.mutable_grad() = torch::zeros({1});
  EXPECT_TRUE(recording.finds_gradients()) << "it makes its own";
  recording.replay();
  EXPECT_TRUE(made.grad().is_same(captured));
  EXPECT_FALSE(dropped.grad().defined());
}

TEST(GraphRecording, KnowsWhetherTheGradientsItAddsToAreThere) {
  std::string notes;
  GraphRecording recording(std::make_unique<NotedGraphs>(notes));
  const auto parameter = torch::zeros({1}).requires_grad_();
  parameter.mutable_grad() = torch::ones({1});
  const auto before = parameter.grad();
  recording.begin({parameter});
  recording.end();
  EXPECT_TRUE(recording.finds_gradients());
  parameter.mutable_grad() = torch::ones({1});
  EXPECT_FALSE(recording.finds_gradients());
  parameter.mutable_grad().reset();
  EXPECT_FALSE(recording.finds_gradients());
  parameter.mutable_grad() = before;
  EXPECT_TRUE(recording.finds_gradients());
}

TEST(GraphRecording, AFailedActionEndsTheCallAndAbandonEndsTheCapture) {
  std::string notes;
  GraphRecording recording(std::make_unique<NotedGraphs>(notes));
  recording.begin({});
  EXPECT_THROW(recording.interrupt([] { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_FALSE(recording.is_capturing());
  recording.abandon();
  EXPECT_EQ(notes, "(00)0!0x") << "nothing was left to end";
  notes.clear();
  GraphRecording other(std::make_unique<NotedGraphs>(notes));
  other.begin({});
  other.abandon();
  EXPECT_FALSE(other.is_capturing());
  EXPECT_EQ(notes, "(00)0x");
}

TEST(GraphRecording, NeedsTheGradientsThatTheCallUsesOrChangesWhateverBecomesOfThem) {
  for (const bool uses : {true, false}) {
    std::string notes;
    GraphRecording recording(std::make_unique<NotedGraphs>(notes));
    const auto parameter = torch::zeros({1}).requires_grad_();
    parameter.mutable_grad() = torch::ones({1});
    const auto before = parameter.grad();
    recording.begin({parameter});
    if (uses) {
      recording.note_used_gradients({parameter});
    } else {
      before.add_(1);
    }
    parameter.mutable_grad().reset();
    recording.end();
    EXPECT_FALSE(recording.finds_gradients());
    parameter.mutable_grad() = before;
    EXPECT_TRUE(recording.finds_gradients());
    recording.replay();
    EXPECT_FALSE(parameter.grad().defined());
  }
}

TEST(GraphRecording, NeedsNoGradientsThatOnlyAnotherOptimizerUses) {
  std::string notes;
  GraphRecording recording(std::make_unique<NotedGraphs>(notes));
  const auto used = torch::zeros({1}).requires_grad_();
  const auto other = torch::zeros({1}).requires_grad_();
  other.mutable_grad() = torch::ones({1});
  recording.begin({used, other});
  recording.note_used_gradients({used});
  other.mutable_grad() = torch::ones({1});
  recording.end();
  EXPECT_TRUE(recording.finds_gradients());
}

TEST(GraphRecording, ObserversAreAskedBeforeALaunchAndToldHowItWent) {
  std::string notes;
  GraphRecording recording(std::make_unique<NotedGraphs>(notes));
  bool refuses = false;
  const auto add_observer = [&](char name, bool may_refuse) {
    recording.observe([&, name, may_refuse] {
      notes += {name, '?'};
      if (may_refuse && refuses) throw std::runtime_error("no");
      return [&, name](const std::function<bool()>& is_done) { notes += {name, is_done ? '+' : '-'}; };
    });
  };
  add_observer('a', false);
  add_observer('b', true);
  recording.begin({});
  recording.interrupt([&] { notes += "A"; });
  recording.end();
  EXPECT_EQ(notes, "(0a?b?0)0!A(11)1!a+b+") << "once a call";
  notes.clear();
  recording.replay();
  EXPECT_EQ(notes, "a?b?0!A1!a+b+");
  notes.clear();
  refuses = true;
  EXPECT_THROW(recording.replay(), std::runtime_error);
  EXPECT_EQ(notes, "a?b?a-") << "nothing is launched";
  notes.clear();
  refuses = false;
  recording.drop();
  notes.clear();
  EXPECT_THROW(recording.replay(), CollectiveAborted);
  EXPECT_EQ(notes, "a?b?a-b-");
}

TEST(GraphRecording, DropDestroysTheGraphsAtOnceOrWhereTheirCaptureEnds) {
  std::string notes;
  GraphRecording recording(std::make_unique<NotedGraphs>(notes));
  recording.begin({});
  recording.end();
  EXPECT_TRUE(recording.is_usable());
  recording.drop();
  EXPECT_EQ(notes, "(00)0!0x");
  EXPECT_FALSE(recording.is_usable());
  EXPECT_THROW(recording.replay(), CollectiveAborted);
  notes.clear();
  GraphRecording capturing(std::make_unique<NotedGraphs>(notes));
  capturing.begin({});
  capturing.drop();
  EXPECT_EQ(notes, "(0") << "another thread captures it";
  EXPECT_THROW(capturing.end(), CollectiveAborted);
  EXPECT_EQ(notes, "(00)0x");
  capturing.abandon();
  EXPECT_EQ(notes, "(00)0x");
}

}  // namespace
}  // namespace lockstep
