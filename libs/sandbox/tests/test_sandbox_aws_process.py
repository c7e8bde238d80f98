"""The sandbox's AWS as a child process: its log, its end, its region."""

from contextlib import closing
from pathlib import Path

import botocore.session
import pytest

from sawhorse_sandbox.aws import seed_account, start_aws
from sawhorse_sandbox.processes import ChildError

pytestmark = pytest.mark.integration


async def test_names_of_other_regions_carry_the_region(tmp_path: Path) -> None:
    async with await start_aws(tmp_path, region="us-west-2") as aws:
        seeded = await seed_account(aws.endpoint_url, "west", "us-west-2")
        session = botocore.session.Session()
        session.set_credentials("test", "test")
        client = session.create_client("ec2", region_name="us-west-2", endpoint_url=aws.endpoint_url)
        with closing(client) as ec2:
            (image, *_) = ec2.describe_images(Filters=[{"Name": "name", "Values": ["*al2023-x86_64-standard-1.36*"]}])[
                "Images"
            ]
            ec2.run_instances(
                ImageId=image["ImageId"],
                InstanceType="m5.large",
                SubnetId=seeded.subnets[0][1],
                MinCount=1,
                MaxCount=1,
            )
        (listed,) = await aws.instances()

    assert listed["privateDnsName"].endswith(".us-west-2.compute.internal")
    assert listed["state"] in ("pending", "running")


async def test_the_server_writes_only_to_its_log_and_is_gone_after_stop(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    aws = await start_aws(tmp_path)

    await aws.stop()
    await aws.stop()

    assert not aws.child.is_running()
    assert capfd.readouterr() == ("", "")
    assert "stopping" in aws.log.read_text()


async def test_a_server_that_cannot_start_is_reported_with_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "moto.py").write_text("raise SystemExit('this moto is broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(ChildError, match="ended with exit code 1") as failed:
        await start_aws(tmp_path)

    assert "this moto is broken" in str(failed.value)
