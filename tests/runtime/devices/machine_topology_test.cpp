#include "lockstep/runtime/devices/internal/machine_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Two NUMA nodes of two CPUs each, with a GPU next to each and one next to both.
constexpr const char* kTwoNodes = R"(<?xml version="1.0" encoding="UTF-8"?>
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0xf" complete_cpuset="0xf" allowed_cpuset="0xf"
      nodeset="0x3" complete_nodeset="0x3" allowed_nodeset="0x3" gp_index="1">
    <object type="Package" os_index="0" cpuset="0x5" complete_cpuset="0x5" nodeset="0x1" complete_nodeset="0x1" gp_index="2">
      <object type="NUMANode" os_index="0" cpuset="0x5" complete_cpuset="0x5" nodeset="0x1" complete_nodeset="0x1" gp_index="3" local_memory="1048576"/>
      <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="4"/>
      <object type="PU" os_index="2" cpuset="0x4" complete_cpuset="0x4" nodeset="0x1" complete_nodeset="0x1" gp_index="5"/>
      <object type="Bridge" gp_index="10" bridge_type="0-1" depth="0" bridge_pci="0000:[00-3f]">
        <object type="PCIDev" gp_index="11" pci_busid="0000:3b:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="0.0"/>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0xa" complete_cpuset="0xa" nodeset="0x2" complete_nodeset="0x2" gp_index="6">
      <object type="NUMANode" os_index="1" cpuset="0xa" complete_cpuset="0xa" nodeset="0x2" complete_nodeset="0x2" gp_index="7" local_memory="1048576"/>
      <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2" complete_nodeset="0x2" gp_index="8"/>
      <object type="PU" os_index="3" cpuset="0x8" complete_cpuset="0x8" nodeset="0x2" complete_nodeset="0x2" gp_index="9"/>
      <object type="Bridge" gp_index="12" bridge_type="0-1" depth="0" bridge_pci="0000:[80-bf]">
        <object type="PCIDev" gp_index="13" pci_busid="0000:af:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="0.0"/>
      </object>
    </object>
    <object type="Bridge" gp_index="14" bridge_type="0-1" depth="0" bridge_pci="0001:[00-0f]">
      <object type="PCIDev" gp_index="15" pci_busid="0001:01:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="0.0"/>
    </object>
  </object>
</topology>
)";

TEST(MachineTopology, KnowsTheCpusOfADevicesNumaNode) {
  const MachineTopology machine{std::string(kTwoNodes)};
  EXPECT_THAT(machine.cpus_near("0000:3b:00.0"), ElementsAre(0, 2));
  EXPECT_THAT(machine.cpus_near("0000:AF:00.0"), ElementsAre(1, 3));
}

TEST(MachineTopology, GivesAllCpusToADeviceOfNoNode) {
  EXPECT_THAT(MachineTopology(std::string(kTwoNodes)).cpus_near("0001:01:00.0"), ElementsAre(0, 1, 2, 3));
}

TEST(MachineTopology, GivesNoCpusToADeviceThatItDoesNotKnow) {
  const MachineTopology machine{std::string(kTwoNodes)};
  EXPECT_THAT(machine.cpus_near("0000:00:01.0"), IsEmpty());
  EXPECT_THAT(machine.cpus_near("gpu:0"), IsEmpty());
  EXPECT_THAT(MachineTopology().cpus_near("ffff:ff:1f.7"), IsEmpty());
}

/// Returns the bus ids of this machine's PCI devices for storage and networks, which hwloc looks for as it
/// does for GPUs.
std::vector<std::string> devices_of_this_machine() {
  std::vector<std::string> ids;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/bus/pci/devices", none)) {
    std::string device_class;
    std::ifstream(entry.path() / "class") >> device_class;
    if (device_class.starts_with("0x01") || device_class.starts_with("0x02"))
      ids.push_back(entry.path().filename().string());
  }
  return ids;
}

TEST(MachineTopology, FindsTheDevicesOfThisMachine) {
  const auto ids = devices_of_this_machine();
  if (ids.empty()) GTEST_SKIP() << "this machine has no PCI devices for storage or networks";
  const MachineTopology machine;
  for (const auto& id : ids) EXPECT_FALSE(machine.cpus_near(id).empty()) << id;
}

TEST(MachineTopology, RefusesATextThatDescribesNoMachine) {
  EXPECT_THROW(MachineTopology(std::string("<topology>")), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
