// write_reports FOLDER: writes reports of invented runs into FOLDER, one for each kind that could look wrong,
// for report_test.py to open in a browser.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>
#include <random>

#include "lockstep/runtime/base/files/output_file.h"
#include "lockstep/runtime/base/files/png_encoder.h"
#include "lockstep/tests/support/odd_numbers.h"
#include "lockstep/tests/support/test_files.h"
#include "lockstep/training/reporting/html/internal/bar_plot.h"
#include "lockstep/training/reporting/html/internal/html_page.h"
#include "lockstep/training/reporting/html/internal/html_text.h"
#include "lockstep/training/reporting/html/internal/line_plot.h"
#include "lockstep/training/reporting/html/report.h"
#include "lockstep/training/reporting/records/measured_pipeline.h"

namespace lockstep {
namespace {

using testing::kInfinity;
using testing::kNan;

/// A grey picture with a bright stroke.
std::vector<uint8_t> draw_picture(int number) {
  constexpr int64_t kSide = 28;
  std::vector<uint8_t> pixels(kSide * kSide);
  for (int64_t i = 4; i < 24; ++i) {
    const auto x = static_cast<int64_t>(14 + 8 * std::sin(0.3 * static_cast<double>(i) + number));
    for (int64_t k = 0; k < 3; ++k)
      pixels[static_cast<size_t>(i * kSide + x + k)] = static_cast<uint8_t>(255 - 70 * k);
  }
  return encode_png(pixels, {.width = kSide, .height = kSide});
}

ConfusionCounts confuse(const std::vector<std::string>& names, int64_t examples, double accuracy) {
  std::mt19937 generator(5);
  std::uniform_real_distribution<double> uniform(0, 1);
  const size_t num_classes = names.size();
  ConfusionCounts matrix{.class_names = names, .counts = std::vector<int64_t>(num_classes * num_classes)};
  for (size_t row = 0; row < num_classes; ++row) {
    for (int64_t i = 0; i < examples; ++i) {
      const auto other =
          static_cast<size_t>(uniform(generator) * uniform(generator) * static_cast<double>(num_classes));
      ++matrix.counts[row * num_classes + (uniform(generator) < accuracy ? row : other)];
    }
  }
  return matrix;
}

std::vector<std::string> numbered_names(const std::string& prefix, int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(prefix + std::to_string(i));
  return names;
}

EpochRecord invent_epoch(int64_t epoch, double scale) {
  const auto x = static_cast<double>(epoch);
  return {.epoch = epoch,
          .step = epoch * 938,
          .loss = scale * (0.04 + 0.9 * std::exp(-0.8 * x)),
          .accuracy = 0.994 - 0.2 * std::exp(-0.8 * x),
          .validation_loss = scale * (0.05 + 0.6 * std::exp(-0.8 * x) + 0.004 * x),
          .validation_accuracy = 0.989 - 0.1 * std::exp(-0.9 * x) - 0.0004 * x,
          .learning_rate = 0.0005 * (1 + std::cos(0.3 * x)),
          .images_per_second = 4120 + 130 * std::sin(2 * x),
          .data_wait_share = 0.012 + 0.004 * std::sin(x),
          .seconds = 15.2 + 0.4 * std::sin(x),
          .others = {{"precision", 0.98 - 0.1 / x}, {"validation_precision", 0.97 - 0.1 / x}}};
}

RunRecord usual_run() {
  RunRecord record{.title = "simple_cnn on MNIST"};
  record.start = {.time = std::chrono::system_clock::time_point{std::chrono::seconds(1709210096)},
                  .hosts = {"node1", "node2"},
                  .version = "0.1.0"};
  record.configuration = {
      {"model", "simple_cnn"},
      {"data", "/data/mnist, MNIST's IDX files", "environment LOCKSTEP_MNIST_DIR"},
      {"strategy", "mirrored: two replicas on cpu:0 and cpu:1, gradients summed by local", "flag"},
      {"global-batch-size", "64"},
      {"learning-rate", "0.001", "file earlier/config.json"},
      {"seed", "1"}};
  for (int64_t epoch = 1; epoch <= 10; ++epoch) record.epochs.push_back(invent_epoch(epoch, 1));
  std::mt19937 generator(3);
  std::normal_distribution<double> noise(0, 0.08);
  for (int64_t step = 1; step <= 9380; ++step) {
    const auto x = static_cast<double>(step);
    record.steps.push_back(
        {.step = step,
         .loss = 0.05 + 2.2 * std::exp(-x / 700) + std::abs(noise(generator)),
         .learning_rate = 0.0005 * (1 + std::cos(3.14159 * x / 9380)),
         .others = {{"gradient_norm", 1 + 3 * std::exp(-x / 900) + std::abs(noise(generator))}}});
  }
  record.confusion = confuse(numbered_names("", 10), 980, 0.985);
  for (int i = 0; i < 24; ++i) {
    record.misclassified.push_back({.png = draw_picture(i),
                                    .true_class = std::to_string(i % 10),
                                    .predicted_class = std::to_string((i + 3) % 10),
                                    .confidence = 0.99 - 0.02 * i});
  }
  record.num_misclassified = 118;
  record.totals = {.epochs = 10, .steps = 9380, .images = 600000, .seconds = 152.4};
  return record;
}

RunRecord run_with_nan() {
  RunRecord record{.title = "A run that diverged"};
  for (int64_t epoch = 1; epoch <= 6; ++epoch) {
    EpochRecord done = invent_epoch(epoch, 1e6);
    if (epoch >= 4) done.loss = epoch == 4 ? kInfinity : kNan;
    done.validation_loss = epoch == 3 ? std::optional(kNan) : done.validation_loss;
    done.learning_rate = kNan;
    record.epochs.push_back(done);
  }
  record.confusion = confuse({"cat", "dog"}, 12, 0.5);
  record.misclassified = {
      {.png = draw_picture(1), .true_class = "cat", .predicted_class = "dog", .confidence = kNan}};
  record.num_misclassified = 1;
  record.totals = {.status = RunStatus::kFailed,
                   .reason = "The loss was NaN in epoch 5, step 4123 of replica 1.",
                   .epochs = 6,
                   .steps = 5628,
                   .images = 360192,
                   .seconds = 7260};
  return record;
}

RunRecord run_of_one_epoch() {
  RunRecord record{.title = "One epoch of one step"};
  record.epochs = {invent_epoch(1, 1)};
  record.steps = {{.step = 1, .loss = 2.3, .learning_rate = 0.001, .images_per_second = 100}};
  record.confusion = confuse({"only"}, 7, 1);
  record.num_misclassified = 0;
  record.totals = {.epochs = 1, .steps = 1, .images = 64, .seconds = 0.031};
  return record;
}

RunRecord run_with_a_hundred_classes() {
  RunRecord record{.title = "A hundred classes"};
  for (int64_t epoch = 1; epoch <= 90; ++epoch) record.epochs.push_back(invent_epoch(epoch, 1e-5));
  record.confusion = confuse(numbered_names("great white shark ", 100), 50, 0.7);
  record.num_misclassified = 1500;
  record.totals = {.status = RunStatus::kStoppedEarly,
                   .reason = "No better validation loss for 10 epochs.",
                   .epochs = 90,
                   .steps = 84420,
                   .images = 115301610,
                   .seconds = 273906};
  return record;
}

/// A step whose computations last up to a tenth more or less than planned, and begin ever later.
PipelineRecord invent_pipeline(const PipelineSchedule& schedule, double forward) {
  std::mt19937 generator(7);
  std::uniform_real_distribution<double> uniform(0.9, 1.1);
  PipelineTimeline timeline =
      simulate_pipeline(schedule, uniform_pipeline_times(schedule, forward, 2 * forward));
  for (auto& rank : timeline.ranks) {
    double late = 0;
    double free = 0;  // when the action before has ended
    for (auto& action : rank) {
      const double length = (action.end - action.begin) * uniform(generator);
      action.begin = std::max(action.begin + late, free);
      action.end = free = action.begin + length;
      late += 0.05 * forward;
    }
  }
  return pipeline_record(schedule, timeline, {.step = 3});
}

RunRecord run_of_a_pipeline(const PipelineSchedule& schedule, double forward) {
  RunRecord record{.title = "A pipeline"};
  record.pipeline = invent_pipeline(schedule, forward);
  record.totals = {.epochs = 1, .steps = 10, .images = 640, .seconds = 3.1};
  return record;
}

RunRecord hostile_run() {
  const std::string hostile = "<script>document.title='taken'</script>\"'&\x01\xFF";
  RunRecord record{.title =
                       hostile + " and a title that goes on without any end or_place_to_break_it_in_two"};
  record.start = {.hosts = std::vector(7, std::string(63, 'h')), .version = hostile};
  record.configuration = {{hostile, hostile, hostile},
                          {"a-long-value", std::string(400, 'x'), "flag"},
                          {"\u00fcber", "\u4e2d\u6587 \u2264 \U0001F600", "flag"}};
  for (int64_t epoch = 1; epoch <= 3; ++epoch) {
    record.epochs.push_back(
        {.epoch = epoch, .loss = -1e300 * static_cast<double>(epoch), .others = {{hostile, 5e-324}}});
  }
  record.confusion = confuse({hostile, "\u4e2d\u6587", "a", "sulphur-crested cockatoo"}, 123456, 0.9);
  record.misclassified = {
      {.png = draw_picture(2), .true_class = hostile, .predicted_class = hostile, .confidence = 1}};
  record.pipeline = run_of_a_pipeline(gpipe_schedule(2, 1), 1e-9).pipeline;
  record.pipeline->schedule = hostile;
  record.pipeline->actions[3].end = 1e9;  // of the first rank's backward
  record.totals = {.status = RunStatus::kInterrupted, .reason = hostile, .epochs = 3, .seconds = kNan};
  return record;
}

/// A comparison of strategies, built from the same pieces.
std::string comparison_page() {
  LinePlot losses{.title = "Loss", .x_label = "step"};
  for (const std::string name : {"default", "mirrored:2", "mirrored:4", "multi_worker:2", "one_device",
                                 "central_storage", "parameter_server:2", "custom"}) {
    PlotLine line{.name = name};
    const auto place = static_cast<double>(losses.lines.size());
    for (int step = 1; step <= 50; ++step) {
      line.points.push_back(
          {.x = static_cast<double>(step), .y = 0.1 * place + 2.3 * std::exp(-step / (8.0 + place))});
    }
    losses.lines.push_back(line);
  }
  const BarPlot speeds{
      .title = "Speed",
      .value_label = "images a second, median of the rounds with its 95 % interval",
      .bars = {{"default", 4120.4, {{4032, 4190.5}}},
               {"mirrored:2", 7230, {{5301, 7950}}},
               {"multi_worker:2 with a very long name", 12345678, {{12000000, 12400000}}},
               {"custom", kNan},
               {"gpu", 0, {}, "failed with exit code 2: no GPU on this machine, or one in use"}}};
  const BarPlot ratios{.title = "Ratio to the first",
                       .value_label = "times as fast",
                       .bars = {{"default", 1}, {"mirrored:2", 1.754, {{1.6, 1.9}}}},
                       .reference = 1};
  const BarPlot waits{.title = "Communication share",
                      .value_label = "of the time",
                      .bars = {{"default", 0}, {"mirrored:2", 0.1234, {{0.1, 0.15}}}},
                      .numbers = AxisNumbers::kPercent};
  HtmlPage page("Comparison of strategies");
  page.line("simple_cnn on MNIST, 50 steps").heading("Speed");
  page.figures({bar_plot_figure(speeds), bar_plot_figure(ratios), bar_plot_figure(waits)});
  page.heading("Loss").figures({line_plot_figure(losses)});
  page.elements(html_table({.columns = {{"Strategy"}, {"Images a second", true}},
                            .rows = {{"default", "4120"}, {"mirrored:2", "7230"}}}));
  return page.html();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_reports FOLDER" << std::endl;
    return 2;
  }
  using namespace lockstep;
  const std::string folder = std::string(argv[1]) + "/";
  write_report(usual_run(), folder + "usual.html");
  write_report(run_with_nan(), folder + "nan.html");
  write_report(run_of_one_epoch(), folder + "one_epoch.html");
  write_report(run_with_a_hundred_classes(), folder + "hundred_classes.html");
  write_report(hostile_run(), folder + "hostile.html");
  write_report({}, folder + "empty.html");
  write_report(run_of_a_pipeline(one_forward_one_backward_schedule(4, 8), 0.02), folder + "pipeline.html");
  write_report(run_of_a_pipeline(zero_bubble_v_schedule(4, 12), 0.003), folder + "halves.html");
  write_report(run_of_a_pipeline(interleaved_schedule(8, 2, 64), 2), folder + "interleaved.html");
  write_report(run_of_a_pipeline(gpipe_schedule(100, 120), 2e-5), folder + "many_ranks.html");
  replace_file(folder + "comparison.html", comparison_page());
  return 0;
}
