#include "lockstep/runtime/graph_recording.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <stdexcept>
#include <string>

namespace lockstep {
namespace {

/// Notes what is asked of its graphs: `(0` begin of the first one's capture, `0)` end, `0!` replay.
class NotedGraphs : public DeviceGraphPool {
 public:
  explicit NotedGraphs(std::string& notes) : notes_(notes) {}

  std::unique_ptr<DeviceGraph> make_graph() override { return std::make_unique<Graph>(notes_, count_++); }

 private:
  class Graph : public DeviceGraph {
   public:
    Graph(std::string& notes, int number) : notes_(notes), name_(std::to_string(number)) {}
    void begin_capture() override { notes_ += "(" + name_; }
    void end_capture() override { notes_ += name_ + ")"; }
    void replay() override { notes_ += name_ + "!"; }

   private:
    std::string& notes_;
    const std::string name_;
  };

  std::string& notes_;
  int count_ = 0;
};

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
  recording.at_replay([&] { notes += "n"; });
  recording.interrupt([&] { notes += "B"; });
  recording.end();
  EXPECT_EQ(notes, "(00)0!A(11)1!B(22)2!") << "notes are the call's own work";
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
  EXPECT_EQ(notes, "(00)0!") << "nothing was left to end";
  GraphRecording other(std::make_unique<NotedGraphs>(notes));
  other.begin({});
  other.abandon();
  EXPECT_FALSE(other.is_capturing());
  EXPECT_EQ(notes, "(00)0!(00)");
}

}  // namespace
}  // namespace lockstep
