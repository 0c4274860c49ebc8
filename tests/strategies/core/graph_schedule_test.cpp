#include "lockstep/strategies/core/graph_schedule.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <string>

namespace lockstep {
namespace {

/// Graphs that do nothing: the schedule does not look into them.
class EmptyGraphs : public DeviceGraphPool {
 public:
  std::unique_ptr<DeviceGraph> make_graph() override {
    struct EmptyGraph : DeviceGraph {
      void begin_capture() override {}
      void end_capture() override {}
      void replay() override {}
    };
    return std::make_unique<EmptyGraph>();
  }
  std::function<bool()> watch_stream() override {
    return [] { return true; };
  }
};

Fingerprint fingerprint(int64_t value) {
  Fingerprint result;
  result.add(value);
  return result;
}

Fingerprint unsettled() {
  Fingerprint result;
  result.add_unsettled();
  return result;
}

/// A schedule of one replica with two warm-up runs, which captures when told to.
class Scheduled {
 public:
  /// c: a call, C: a capture, r: a replay.
  char next(const Fingerprint& now) {
    const GraphUse use = schedule_.plan(now);
    schedule_.begin(now, use);
    switch (use) {
      case GraphUse::kCall:
        return 'c';
      case GraphUse::kReplay:
        return 'r';
      case GraphUse::kCapture:
        break;
    }
    schedule_.recording(0) = std::make_shared<GraphRecording>(std::make_unique<EmptyGraphs>());
    schedule_.recording(0)->begin(parameters);
    if (captures_fail) return 'F';
    schedule_.recording(0)->end();
    schedule_.end_capture();
    return 'C';
  }
  std::string uses(const std::vector<int64_t>& values) {
    std::string text;
    for (const int64_t value : values) text += next(fingerprint(value));
    return text;
  }

  GraphRecording* recording() { return schedule_.recording(0).get(); }

  std::vector<at::Tensor> parameters;
  bool captures_fail = false;

 private:
  GraphSchedule schedule_{1, 2};
};

TEST(GraphSchedule, CapturesAfterTheWarmUpAndReplaysFromThenOn) {
  EXPECT_EQ(Scheduled().uses({1, 1, 1, 1, 1}), "ccCrr");
}

TEST(GraphSchedule, BeginsTheWarmUpAnewWhereSomethingChanges) {
  EXPECT_EQ(Scheduled().uses({1, 2, 2, 2, 2}), "cccCr");
}

TEST(GraphSchedule, CallsForWhatComesInBetweenHoweverOften) {
  EXPECT_EQ(Scheduled().uses({1, 1, 1, 2, 1, 1, 2, 1, 2, 1, 2, 1, 2}), "ccCcrrcrcrcrc");
}

TEST(GraphSchedule, CapturesWhatStaysInPlaceOfTheOld) {
  EXPECT_EQ(Scheduled().uses({1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1}), "ccCrccCrccC");
}

TEST(GraphSchedule, NeverCapturesWhatIsAboutToChange) {
  Scheduled schedule;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(schedule.next(unsettled()), 'c');
  EXPECT_EQ(schedule.uses({1, 1, 1}), "ccC");
  EXPECT_EQ(schedule.next(unsettled()), 'c');
  EXPECT_EQ(schedule.uses({1}), "r");
}

TEST(GraphSchedule, ForgetsACaptureThatFailed) {
  Scheduled schedule;
  schedule.captures_fail = true;
  EXPECT_EQ(schedule.uses({1, 1, 1}), "ccF");
  schedule.captures_fail = false;
  EXPECT_EQ(schedule.uses({1, 1}), "Cr");
}

TEST(GraphSchedule, DoesNotReplayWhatWasDropped) {
  Scheduled schedule;
  EXPECT_EQ(schedule.uses({1, 1, 1, 1}), "ccCr");
  schedule.recording()->drop();
  EXPECT_EQ(schedule.uses({1, 1, 1, 1}), "ccCr");
}

TEST(GraphSchedule, CallsAndThenCapturesAnewWhereAReplayWouldNotFindTheGradientsItAddsTo) {
  Scheduled schedule;
  const auto parameter = torch::zeros({2}).requires_grad_();
  parameter.mutable_grad() = torch::ones({2});
  schedule.parameters = {parameter};
  EXPECT_EQ(schedule.uses({1, 1, 1, 1}), "ccCr");
  const auto old = parameter.grad();
  parameter.mutable_grad() = torch::ones({2});
  EXPECT_EQ(schedule.uses({1}), "c");
  parameter.mutable_grad() = old;
  EXPECT_EQ(schedule.uses({1}), "r");
  parameter.mutable_grad() = torch::ones({2});
  EXPECT_EQ(schedule.uses({1, 1, 1, 1}), "ccCr");
}

TEST(GraphSchedule, CapturesOnceOnlyWhatUsesGradientsThatDoNotComeBack) {
  Scheduled schedule;
  const auto parameter = torch::zeros({2}).requires_grad_();
  schedule.parameters = {parameter};
  std::string uses;
  for (int run = 0; run < 8; ++run) {
    parameter.mutable_grad() = torch::ones({2});
    uses += schedule.next(fingerprint(1));
  }
  EXPECT_EQ(uses, "ccCccccc");
  EXPECT_EQ(schedule.uses({2, 2, 2, 2}), "ccCr");
}

}  // namespace
}  // namespace lockstep
