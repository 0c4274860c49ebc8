#include "lockstep/training/reporting/html/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <system_error>

#include "lockstep/tests/support/test_files.h"
#include "lockstep/tests/support/text_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_text;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;

TEST(ReportTest, TellsWhatTheRunCameTo) {
  const RunRecord record{
      .title = "simple_cnn",
      .configuration = {{"seed", "1"}, {"epochs", "2", "flag"}},
      .epochs = {{.epoch = 1, .validation_loss = 0.3, .validation_accuracy = 0.95},
                 {.epoch = 2, .validation_loss = std::nan(""), .validation_accuracy = 0.91}},
      .totals = {.epochs = 2, .steps = 1876, .images = 120000, .seconds = 31.5}};
  const std::string html = report_html(record);
  EXPECT_THAT(html, AllOf(HasSubstr("<title>simple_cnn</title>"),
                          HasSubstr("Completed: 2 epochs, 1\u202F876 steps in 31.5 s"),
                          HasSubstr("<dt>Best validation accuracy (epoch 1)</dt><dd>95.00\u202F%</dd>"),
                          HasSubstr("<dt>Lowest validation loss (epoch 1)</dt><dd>0.3</dd>"),
                          HasSubstr("<dt>Images trained on</dt><dd>120\u202F000</dd>")));
  EXPECT_THAT(html, HasSubstr("<tr class=\"marked\"><td>epochs</td><td>2</td><td>flag</td></tr>"));
  EXPECT_THAT(html, HasSubstr("<tr><td>seed</td><td>1</td><td>default</td></tr>"));
}

// The expected texts are from GNU date: date -u -d @1709210096.
TEST(ReportTest, SaysWhenAndWhereTheRunWasStartedAndByWhichVersion) {
  const std::chrono::system_clock::time_point leap_day{std::chrono::seconds(1709210096)};
  const auto header_of = [](const RunStart& start) {
    const std::string html = report_html({.title = "run", .start = start});
    return html.substr(html.find("<header>"), html.find("</header>") - html.find("<header>"));
  };
  EXPECT_THAT(header_of({.time = leap_day, .hosts = {"node<1>"}, .version = "1.2.3"}),
              HasSubstr("<p>Started 2024-02-29 12:34:56 UTC on node&lt;1&gt; with Lockstep 1.2.3</p>"));
  EXPECT_THAT(header_of({.time = leap_day}), HasSubstr("<p>Started 2024-02-29 12:34:56 UTC</p>"));
  EXPECT_THAT(header_of({.hosts = {"a", "b", "c", "d"}}), HasSubstr("<p>Started on a, b, c, d</p>"));
  EXPECT_THAT(header_of({.hosts = {"a", "b", "c", "d", "e"}}),
              HasSubstr("on a, b, c, d and 1 other host</p>"));
  EXPECT_THAT(header_of({.hosts = {"a", "b", "c", "d", "e", "f"}}),
              HasSubstr("on a, b, c, d and 2 other hosts</p>"));
  EXPECT_THAT(header_of({}), Not(HasSubstr("Started")));
}

TEST(ReportTest, TellsStartUpAndEarlierStepsApart) {
  const std::string html = report_html(
      {.title = "run",
       .totals = {
           .epochs = 2, .steps = 1876, .seconds = 31.5, .start_up_seconds = 0.25, .steps_before = 938}});
  EXPECT_THAT(html,
              HasSubstr("Completed: 2 epochs, 1\u202F876 steps, the last 938 of them in 31.5 s, after a "
                        "start-up of 0.25 s"));
}

TEST(ReportTest, ListsMemoryByPart) {
  const std::string html =
      report_html({.title = "run",
                   .memory = MemoryRecord{
                       .parameters = 1024, .optimizer_state = 2048, .peak = 5 << 20, .is_of_process = true}});
  EXPECT_THAT(html,
              AllOf(HasSubstr("<h2>Memory</h2>"), HasSubstr("<td>Parameters</td>"), HasSubstr("1.0 KiB"),
                    HasSubstr("1\u202F024"), HasSubstr("<td>State of the optimizer</td>"),
                    HasSubstr("<td>Peak of the process</td>"), HasSubstr("5\u202F242\u202F880"),
                    Not(HasSubstr("Activations"))));
  EXPECT_THAT(report_html({.title = "run"}), Not(HasSubstr("Memory")));
}

TEST(ReportTest, ListsMemoryPerRankBesideTheFormula) {
  RunRecord record{.title = "run", .memory = MemoryRecord{.parameters = 1024}};
  EXPECT_THAT(report_html(record), Not(HasSubstr("Memory per rank")));
  const MemoryParts predicted{.parameters = 4096, .gradients = 1024, .optimizer_state = 0};
  record.memory->ranks = {
      {.rank = 0, .measured = {.parameters = 4096, .gradients = 1024}, .predicted = predicted},
      {.rank = 1, .measured = {.parameters = 4096, .gradients = 2048}, .predicted = predicted}};
  const auto row = [](const std::string& name, const std::string& measured, const std::string& predicted) {
    return "<td>" + name + "</td><td class=\"number\">" + measured + "</td><td class=\"number\">" +
           predicted + "</td>";
  };
  EXPECT_THAT(report_html(record),
              AllOf(HasSubstr("Memory per rank"), HasSubstr(row("Parameters", "4.0 KiB", "4.0 KiB")),
                    HasSubstr(row("Gradients", "1.0 KiB to 2.0 KiB", "1.0 KiB")),
                    HasSubstr(row("Sum", "5.0 KiB to 6.0 KiB", "5.0 KiB")), Not(HasSubstr("Gathered"))));
}

TEST(ReportTest, LeavesOutWhatWasNotMeasured) {
  const std::string html = report_html({.title = "run", .epochs = {{.epoch = 1, .loss = 0.5}}});
  EXPECT_THAT(html, AllOf(HasSubstr("<figcaption>Loss</figcaption>"), Not(HasSubstr("Accuracy")),
                          Not(HasSubstr("second<")), Not(HasSubstr("Confusion")),
                          Not(HasSubstr("Misclassified")), Not(HasSubstr("Configuration"))));
}

TEST(ReportTest, CallsTheExamplesByTheirName) {
  const std::string html = report_html({.title = "run",
                                        .examples = "rows",
                                        .epochs = {{.epoch = 1, .images_per_second = 12.5}},
                                        .totals = {.images = 7}});
  EXPECT_THAT(html,
              AllOf(HasSubstr("<dt>Rows trained on</dt><dd>7</dd>"), HasSubstr("<dt>Rows a second</dt>"),
                    HasSubstr("<figcaption>Rows a second</figcaption>"), Not(HasSubstr("mages"))));
}

TEST(ReportTest, SaysThatNoImageWasMisclassified) {
  EXPECT_THAT(report_html({.title = "run", .num_misclassified = 0}),
              HasSubstr("None. The model classified every image correctly."));
}

TEST(ReportTest, SaysHowManyOfTheMisclassifiedImagesItShows) {
  const MisclassifiedImage image{.png = {1}, .true_class = "cat", .predicted_class = "dog"};
  const auto shown = [&](size_t count, int64_t total) {
    return report_html({.misclassified = std::vector(count, image), .num_misclassified = total});
  };
  EXPECT_THAT(shown(2, 1500), HasSubstr("<p>2 of 1\u202F500 images, with the true class"));
  EXPECT_THAT(shown(2, 2), HasSubstr("<p>2 images, with the true class"));
  EXPECT_THAT(shown(1, 1), HasSubstr("<p>1 image, with the true class"));
}

TEST(ReportTest, ShowsTheLastSamplesFirstAndFoldsTheEarlierOnes) {
  const std::string html = report_html(
      {.samples = {
           {"step 1", "", "early <text>"}, {"step 2", "once", " upon a time"}, {"step 2", "once", " more"}}});
  EXPECT_THAT(html, AllOf(HasSubstr("<h2>Sample texts</h2>"), HasSubstr("early &lt;text&gt;"),
                          HasSubstr("<b>once</b> upon a time"), HasSubstr("<b>once</b> more")));
  EXPECT_LT(html.find(" more"), html.find("<summary>Texts of earlier tests</summary>"));
  EXPECT_LT(html.find("<summary>Texts of earlier tests</summary>"), html.find("early &lt;text&gt;"));
  EXPECT_THAT(report_html({.samples = {{"step 2", "", "only"}}}), Not(HasSubstr("<summary>")));
  EXPECT_THAT(report_html({.samples = {{"step 2", "", ""}}}), HasSubstr("ended the text at once"));
  EXPECT_THAT(report_html({}), Not(HasSubstr("Sample texts")));
}

TEST(ReportTest, ShowsTheUtilizationOfTheDevicesAsAShareAndSpeedsOnce) {
  const std::string html =
      report_html({.examples = "tokens",
                   .epochs = {{.epoch = 1,
                               .images_per_second = 5000,
                               .others = {{"tokens_per_second", 5000}, {"model_flop_utilization", 0.375}}}}});
  EXPECT_THAT(html, AllOf(HasSubstr("<dt>Model FLOP utilization</dt><dd>37.5\u202F%</dd>"),
                          HasSubstr("<figcaption>Model FLOP utilization</figcaption>"),
                          HasSubstr("<figcaption>Tokens a second</figcaption>"),
                          Not(HasSubstr("<figcaption>Tokens per second</figcaption>"))));
}

TEST(ReportTest, ComparesTheLastValidationLossWithReferences) {
  const RunRecord record{
      .epochs = {{.epoch = 1, .validation_loss = 2.5}, {.epoch = 2, .validation_loss = 1.75}},
      .reference_losses = {{"entropy", 1.5}, {"bigram model", 2.0}}};
  const std::string html = report_html(record);
  const std::string rows[] = {
      "<tr><td>entropy</td><td class=\"number\">1.5</td>",
      "<tr class=\"marked\"><td>this model, at its last test</td><td class=\"number\">1.75</td>",
      "<tr><td>bigram model</td><td class=\"number\">2</td>"};
  EXPECT_LT(html.find(rows[0]), html.find(rows[1]));  // in the order of their losses
  EXPECT_LT(html.find(rows[1]), html.find(rows[2]));
  EXPECT_NE(html.find(rows[2]), std::string::npos);
  EXPECT_THAT(html, HasSubstr("<dt>Above the entropy</dt><dd>0.25</dd>"));
  EXPECT_THAT(html, HasSubstr("entropy ends at 1.5"));  // the plot's level line
  EXPECT_THAT(
      report_html({.epochs = {{.validation_loss = 1.0}}, .reference_losses = {{"bigram model", 1.5}}}),
      HasSubstr("<dt>Below the bigram model</dt><dd>0.5</dd>"));
}

TEST(ReportTest, SaysWhyARunEnded) {
  EXPECT_THAT(report_html({.title = "run",
                           .totals = {.status = RunStatus::kFailed, .reason = "loss is <NaN>", .epochs = 1}}),
              AllOf(HasSubstr("Failed after 1 epoch, 0 steps"), HasSubstr("loss is &lt;NaN&gt;")));
  EXPECT_THAT(report_html({.title = "run", .totals = {.status = RunStatus::kInterrupted}}),
              HasSubstr("Interrupted after"));
  EXPECT_THAT(report_html({.title = "run", .totals = {.status = RunStatus::kStoppedEarly}}),
              HasSubstr("Stopped early after"));
}

TEST(ReportTest, TakesThePlaceOfAnEarlierOne) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/report.html";
  write_report({.title = "first"}, path);
  write_report({.title = "second"}, path);
  EXPECT_EQ(read_text(path), report_html({.title = "second"}));
  EXPECT_THAT([&] { write_report({}, folder.path() + "/absent/report.html"); },
              ThrowsMessage<std::system_error>(HasSubstr("/absent/report.html'")));
}

}  // namespace
}  // namespace lockstep
