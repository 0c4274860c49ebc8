// Trains a Gpt in several layouts on this machine and on emulated ones, and compares the one that is planned
// to be the fastest with the one that is, as a table in Markdown. The exit code is 1 if more than a tenth of
// the plans that are ranked first take over 10 % longer than the fastest layout.

#include <torch/utils.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/benchmarks/planning/order/layout_training.h"
#include "lockstep/benchmarks/planning/order/order_case.h"
#include "lockstep/benchmarks/planning/order/order_options.h"
#include "lockstep/benchmarks/run_program.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/measurement/markdown_table.h"
#include "lockstep/measurement/statistics.h"

namespace lockstep::benchmarks {
namespace {

constexpr double kLargestRatio = 1.1;
constexpr int kFirstSteps = 2;

std::string milliseconds(double seconds) {
  return measurement::fixed(1000 * seconds, 0);
}

struct MeasuredLayout {
  PlannedChoice planned;
  double seconds = 0;
};

/// Measures layouts in turn, so that what else the machine does meets all of them. Of steps on this machine,
/// which other programs slow down, there are three times as many, and the fastest counts.
std::vector<MeasuredLayout> measure(const OrderCase& order_case, const std::vector<PlannedChoice>& choices,
                                    int64_t steps) {
  if (!order_case.is_emulated) steps *= 3;
  std::vector<std::unique_ptr<LayoutTraining>> trainings;
  for (const auto& choice : choices)
    trainings.push_back(std::make_unique<LayoutTraining>(order_case, choice.layout));
  std::vector<std::vector<double>> seconds(choices.size());
  for (int64_t i = -kFirstSteps; i < steps; ++i) {
    for (size_t layout = 0; layout < choices.size(); ++layout) {
      const double step = trainings[layout]->step();
      if (i >= 0) seconds[layout].push_back(step);
    }
  }
  std::vector<MeasuredLayout> measured;
  for (size_t layout = 0; layout < choices.size(); ++layout) {
    const auto& all = seconds[layout];
    measured.push_back({choices[layout], order_case.is_emulated ? measurement::median(all)
                                                                : *std::min_element(all.begin(), all.end())});
  }
  return measured;
}

void print_layouts(const std::vector<MeasuredLayout>& layouts) {
  for (const auto& [planned, seconds] : layouts) {
    std::cerr << "    " << text_of(planned.layout) << ": planned " << milliseconds(planned.time.seconds())
              << " ms (bubble " << milliseconds(planned.time.bubble) << ", sums "
              << milliseconds(planned.time.sums + planned.time.gathers) << ", cut "
              << milliseconds(planned.time.cut_layers + planned.time.sequences) << ", units "
              << milliseconds(planned.time.units) << ", optimizer " << milliseconds(planned.time.optimizer)
              << "), " << measurement::fixed(planned.memory.peak() / 1e6, 1) << " MB, measured "
              << milliseconds(seconds) << " ms\n";
  }
}

int run(int argc, char** argv) {
  const OrderOptions options = parse_order(argc, argv);
  const auto cases = order_cases();
  measurement::MarkdownTable table(
      {"case", "ranked first", "planned ms", "measured ms", "fastest", "measured ms", "ratio"});
  std::map<std::string, int> winners;
  int64_t num_near = 0, num_cases = 0;
  for (int64_t number = options.first; number < options.first + options.cases; ++number) {
    if (number > static_cast<int64_t>(cases.size())) break;
    const auto& order_case = cases[static_cast<size_t>(number - 1)];
    torch::manual_seed(1);
    std::cerr << "==> " << number << ": " << order_case.name << std::endl;
    const auto planner = planner_of(order_case);
    const auto choices = layouts_to_measure(planner, static_cast<size_t>(options.layouts));
    if (choices.empty()) throw std::runtime_error("case " + order_case.name + ": no layout fits");
    if (options.only_plans) {
      std::vector<MeasuredLayout> planned;
      for (const auto& choice : choices) planned.push_back({choice});
      print_layouts(planned);
      continue;
    }
    const auto layouts = measure(order_case, choices, options.steps);
    print_layouts(layouts);
    const auto& first = layouts.front();
    const auto& fastest = *std::min_element(
        layouts.begin(), layouts.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
    const double ratio = first.seconds / fastest.seconds;
    ++num_cases;
    if (ratio <= kLargestRatio) ++num_near;
    ++winners[kind_of(fastest.planned.layout)];
    table.add_row({order_case.name, text_of(first.planned.layout), milliseconds(first.planned.time.seconds()),
                   milliseconds(first.seconds), text_of(fastest.planned.layout),
                   milliseconds(fastest.seconds), measurement::fixed(ratio, 3)});
    std::cerr << "    ratio " << measurement::fixed(ratio, 3) << std::endl;
  }
  std::cout << measurement::today() << ", " << measurement::describe_machine() << "\n\n"
            << table << "\n"
            << num_near << " of " << num_cases
            << " plans that are ranked first take at most 10 % longer than "
            << "the fastest layout. The fastest were";
  const char* between = " ";
  for (const auto& [kind, count] : winners) {
    std::cout << between << kind << " (" << count << ")";
    between = ", ";
  }
  std::cout << "\n";
  return 10 * num_near < 9 * num_cases ? 1 : 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] { return lockstep::benchmarks::run(argc, argv); });
}
