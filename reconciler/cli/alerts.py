"""`quorate alerts`: how webhooks stand, and whether a sample arrives."""

from __future__ import annotations

import click

from reconciler.api.alert_payloads import WebhookView
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.exits import ExitCode
from reconciler.cli.output import output_option, print_json
from reconciler.cli.tables import print_table
from reconciler.cli.times import span
from reconciler.model.clock import SystemClock
from solver.model.quantities import Instant


@click.group(invoke_without_command=True, short_help="List the webhooks that are told what happens.")
@output_option("text", "json")
@server_option
@click.pass_context
def alerts(ctx: click.Context, output: str, server: str | None) -> None:
    """List the webhooks of all AlertPolicies: whether they answer, and what they were told."""
    if ctx.invoked_subcommand is not None:
        return
    with api_client(server) as client:
        found = client.alerts.webhooks()
    if output == "json":
        print_json(found)
    elif found.items:
        now = SystemClock().now()
        headings = ("WEBHOOK", "FORMAT", "TO", "STATE", "DELIVERED", "GIVEN UP", "ANSWERED", "PROBLEM")
        print_table(headings, (_row(each, now) for each in found.items), right=("DELIVERED", "GIVEN UP", "ANSWERED"))
    else:
        click.echo("no webhooks: there is no AlertPolicy")


@alerts.command(short_help="Send a sample to each webhook of a policy.")
@click.argument("policy")
@output_option("text", "json")
@server_option
@click.pass_context
def test(ctx: click.Context, policy: str, output: str, server: str | None) -> None:
    """Send a sample to each webhook of the AlertPolicy POLICY. Exits with 1 where one did not take it."""
    with api_client(server) as client:
        sent = client.alerts.send_sample(policy)
    if output == "json":
        print_json(sent)
    else:
        for each in sent.items:
            click.echo(f"{policy}/{each.webhook}: {each.problem or 'it took the sample'}")
    ctx.exit(ExitCode.ERROR if any(each.problem for each in sent.items) else ExitCode.OK)


def _row(webhook: WebhookView, now: Instant) -> list[str]:
    since = f" (since {webhook.failing_since})" if webhook.failing_since is not None else ""
    return [
        f"{webhook.policy}/{webhook.webhook}",
        webhook.format,
        webhook.to,
        webhook.state,
        str(webhook.delivered),
        str(webhook.given_up),
        f"{span(now - webhook.answered_at)} ago" if webhook.answered_at is not None else "",
        f"{webhook.problem}{since}",
    ]
