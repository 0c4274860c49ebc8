#include "lockstep/runtime/workers/worker_info.h"

#include <gtest/gtest.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

TEST(WorkerInfoTest, ReadsWhatItWrote) {
  const WorkerInfo info{.host = "a\tb\\",
                        .address = "::1",
                        .heartbeat_port = 65535,
                        .heartbeat_session = "a session",
                        .exchange_port = 4711,
                        .exchange_name = "a name",
                        .num_replicas = 3,
                        .facts = {{"world size", "2"}, {"two\nlines", "\\n"}, {"", ""}}};
  EXPECT_EQ(WorkerInfo::parse(info.text()), info);
  EXPECT_EQ(WorkerInfo::parse(WorkerInfo{}.text()), WorkerInfo{});
}

TEST(WorkerInfoTest, RefusesWhatItDidNotWrite) {
  const auto info = [](const std::string& port, const std::string& replicas, const std::string& facts = "") {
    return "host\ta\naddress\tb\nheartbeat_port\t" + port +
           "\nheartbeat_session\ts\nexchange_port\t0\nexchange_name\t\nnum_replicas\t" + replicas + "\n" +
           facts;
  };
  EXPECT_NO_THROW(WorkerInfo::parse(info("1", "1", "name\tvalue\n")));
  for (const std::string& text :
       {std::string(), std::string("host\ta\n"), info("1", "1").substr(1), info("1", "1", "name"),
        info("1", "1", "name\n"), info("1", "1", "name\tvalue"), info("1", "1", "a\tb\tc\n"),
        info("1", "1", "a\tescape \\x of nothing\n"), info("1", "1", "a\thalf an escape \\\n"),
        info("007", "1"), info("-1", "1"), info("65536", "1"), info("1", "0"), info("1", "-1"),
        info("1", "65537"), info("1", "2147483648"), info("1", "1 ")})
    EXPECT_THROW(WorkerInfo::parse(text), InvalidArgument) << text;
}

TEST(WorkerInfoTest, NamesTheFirstDifference) {
  const WorkerInfo info{.facts = {{"model", "a"}, {"data", "b"}}};
  EXPECT_FALSE(info.difference(info));
  WorkerInfo other = info;
  other.facts[1].second = "c";
  const auto difference = info.difference(other);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->fact, "data");
  EXPECT_EQ(difference->here, "b");
  EXPECT_EQ(difference->there, "c");
  other.facts.pop_back();
  EXPECT_EQ(info.difference(other)->there, "");
}

}  // namespace
}  // namespace lockstep
