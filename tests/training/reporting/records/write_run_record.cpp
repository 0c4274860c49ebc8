// write_run_record FOLDER: writes event files into FOLDER/tb, FOLDER/metrics.csv and FOLDER/metrics.jsonl.
// The Python tests next to this file know the values, and check what other programs read.

#include <cmath>
#include <iostream>
#include <limits>

#include "lockstep/tests/support/test_files.h"
#include "lockstep/training/reporting/records/metrics_log.h"
#include "lockstep/training/reporting/tensorboard/event_file.h"

namespace lockstep {
namespace {

constexpr double kStart = 1700000000.5;

void write_event_files(const std::string& folder) {
  EventFileWriter train(folder + "/train");
  EventFileWriter validation(folder + "/validation");
  EventFileWriter session(folder);
  session.start_session({.values = {{"learning_rate", 0.001}, {"model", "simple_cnn"}, {"shuffle", true}},
                         .metrics = {{.tag = "epoch/loss", .folder = "train", .title = "training loss"},
                                     {.tag = "epoch/accuracy", .folder = "validation"},
                                     {.tag = "images_per_second"}},
                         .group = "group-a"},
                        {.wall_time = kStart});
  for (int64_t step = 0; step < 50; ++step) {
    const double time = kStart + static_cast<double>(step);
    train.scalar("step/loss", 2.0 / static_cast<double>(step + 1), {.step = step, .wall_time = time});
  }
  for (int64_t epoch = 1; epoch <= 3; ++epoch) {
    const EventTime when{.step = epoch, .wall_time = kStart + static_cast<double>(epoch)};
    train.scalar("epoch/loss", 1.0 / static_cast<double>(epoch), when);
    validation.scalar("epoch/accuracy", 1 - std::pow(0.5, epoch), when);
    session.scalar("images_per_second", 512, when);
  }
  train.scalar("step/odd", std::numeric_limits<double>::quiet_NaN(), {.step = 1});
  train.scalar("step/odd", std::numeric_limits<double>::infinity(), {.step = 2});
  train.scalar("step/odd", -3e-7, {.step = int64_t{1} << 40});

  std::vector<double> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i));
  train.histogram("gradients/weight", make_histogram(values), {.step = 1});
  train.histogram("gradients/bias", make_histogram(std::vector<double>{0.25, 0.25}), {.step = 1});
  train.histogram("gradients/none", make_histogram(std::vector<double>{}), {.step = 1});

  const auto png = testing::encode_png(testing::make_image(5, 7, 3, 1));
  validation.image("misclassified", png, {.step = 3});
  session.text("configuration", "| model | *simple_cnn* |\n|---|---|\n| \u03b7 | 0.001 |", {.step = 0});
  session.end_session(SessionStatus::kSuccess, {.wall_time = kStart + 60});
}

void write_metrics(const std::string& folder) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<MetricRow> rows = {
      {{"epoch", int64_t{1}}, {"loss", 1.0 / 3}, {"note", "plain"}},
      {{"epoch", int64_t{2}}, {"loss", kNan}, {"note", "a, \"b\"\nc\r\nd"}},
      {{"epoch", std::numeric_limits<int64_t>::max()}, {"loss", -kInfinity}, {"accuracy", 5e-324}},
      {{"epoch", std::numeric_limits<int64_t>::min()},
       {"loss", kInfinity},
       {"accuracy", 1.7976931348623157e308}},
      {{"epoch", int64_t{-1}}, {"loss", -0.0}, {"note", ""}, {"accuracy", 0.1}},
      {{"epoch", int64_t{0}},
       {"col,umn \"x\"", 123456789012345680.0},
       {"note", "\u00fcber \u2264 \xF0\x9F\x98\x80"}},
  };
  CsvLog csv(folder + "/metrics.csv");
  JsonLinesLog json(folder + "/metrics.jsonl");
  for (const auto& row : rows) {
    csv.write(row);
    json.write(row);
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_run_record FOLDER" << std::endl;
    return 2;
  }
  lockstep::write_event_files(std::string(argv[1]) + "/tb");
  lockstep::write_metrics(argv[1]);
  return 0;
}
